//! The reading half of a WebSocket. The library decodes; what it answers by itself, to pings mostly,
//! goes through the outbox like everything else.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::tcp::OwnedReadHalf;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::outbox::Outbox;

/// Of what is read at once on each connection.
const READ_BUFFER_BYTES: usize = 4 * 1024;

pub(crate) type Ear = WebSocketStream<Half>;

/// Reads messages of at most so many bytes. `first` was read before.
pub(crate) async fn listen(
    socket: OwnedReadHalf,
    first: Bytes,
    outbox: &Arc<Outbox>,
    message_bytes_max: usize,
) -> Ear {
    let config = WebSocketConfig::default()
        .max_message_size(Some(message_bytes_max))
        .max_frame_size(Some(message_bytes_max))
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0);
    let half = Half { socket, first, outbox: Arc::clone(outbox) };
    WebSocketStream::from_raw_socket(half, Role::Server, Some(config)).await
}

pub(crate) struct Half {
    socket: OwnedReadHalf,
    first: Bytes,
    outbox: Arc<Outbox>,
}

impl Half {
    /// Reads to the end and throws it away, whatever it is: after an error the library reads no more.
    pub async fn hear_out(&mut self) {
        // Not before it is needed: it would be a part of every connection's task.
        let mut bytes = vec![0; READ_BUFFER_BYTES];
        while self.socket.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
    }
}

impl AsyncRead for Half {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.socket).poll_read(context, into);
        }
        let bytes = self.first.len().min(into.remaining());
        into.put_slice(&self.first.split_to(bytes));
        Poll::Ready(Ok(()))
    }
}

/// The library writes whole frames, and all of them are taken.
impl AsyncWrite for Half {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        frame: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.outbox.whole(frame.to_vec());
        Poll::Ready(Ok(frame.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
