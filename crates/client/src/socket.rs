//! The WebSocket: made within a deadline, and written without holding up what is read.

use std::pin::Pin;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::error::UrlError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use crate::config::MESSAGE_BYTES_MAX;
use crate::{ConnectError, PUBLISHES_MAX, SUBSCRIPTIONS_MAX};

/// What may wait to be written: each publish and each subscription twice, and some for the rest. A
/// relay that lets more pile up does not read, and the connection is given up.
const OUTGOING_MESSAGES_MAX: usize = 2 * (PUBLISHES_MAX + 2 * SUBSCRIPTIONS_MAX) + 64;
/// How long a socket may take nothing before the connection is given up.
const STALL_WAIT_MAX: Duration = Duration::from_secs(30);

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// One attempt to connect.
pub(crate) async fn dial(url: String, wait_max: Duration) -> Result<Socket, ConnectError> {
    if url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("wss://")) {
        return Err(ConnectError::Tls { url });
    }
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    // Answers are waited for: small messages must not be held back.
    let dialed = timeout(wait_max, connect_async_with_config(&url, Some(config), true)).await;
    match dialed {
        Err(_) => Err(ConnectError::TimedOut { url, waited: wait_max }),
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(Error::Url(UrlError::UnableToConnect(why)))) => {
            Err(ConnectError::Unreachable { url, source: why.into() })
        }
        Ok(Err(Error::Url(_) | Error::HttpFormat(_))) => Err(ConnectError::Url { url }),
        Ok(Err(error)) => Err(ConnectError::Unreachable { url, source: error.into() }),
    }
}

/// What a connection has to say.
#[derive(Debug)]
pub(crate) enum Frame {
    Text(Utf8Bytes),
    /// A ping, a pong or another sign of life.
    Other,
    End,
}

/// One connection. Dropping it cuts it.
pub(crate) struct Connection {
    stream: SplitStream<Socket>,
    outgoing: mpsc::Sender<Message>,
    writer: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// The relay does not read what it is sent.
#[derive(Debug)]
pub(crate) struct Stalled;

impl Connection {
    pub fn new(socket: Socket) -> Self {
        let (sink, stream) = socket.split();
        let (outgoing, queue) = mpsc::channel(OUTGOING_MESSAGES_MAX);
        Self { stream, outgoing, writer: Box::pin(write(sink, queue)) }
    }

    pub fn send(&self, message: Message) -> Result<(), Stalled> {
        self.outgoing.try_send(message).map_err(|_| Stalled)
    }

    /// The next frame, while what is queued is being written. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Frame {
        tokio::select! {
            frame = self.stream.next() => match frame {
                Some(Ok(Message::Text(text))) => Frame::Text(text),
                Some(Ok(Message::Close(_)) | Err(_)) | None => Frame::End,
                Some(Ok(_)) => Frame::Other,
            },
            () = &mut self.writer => Frame::End,
        }
    }

    /// Writes what is queued, and says farewell.
    pub async fn close(self) {
        let Self { outgoing, writer, .. } = self;
        drop(outgoing);
        writer.await;
    }
}

/// Writes until nothing more will come, or the socket takes nothing.
async fn write(mut sink: SplitSink<Socket, Message>, mut queue: mpsc::Receiver<Message>) {
    while let Some(message) = queue.recv().await {
        let Ok(Ok(())) = timeout(STALL_WAIT_MAX, sink.feed(message)).await else { return };
        if queue.is_empty() {
            let Ok(Ok(())) = timeout(STALL_WAIT_MAX, sink.flush()).await else { return };
        }
    }
    let _ = timeout(STALL_WAIT_MAX, sink.close()).await;
}
