//! A connection to a relay.

use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

/// How long a relay may be silent.
pub const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Thousands of connections are open at once.
const BUFFER_BYTES: usize = 8 * 1024;

pub struct Socket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Socket {
    pub async fn connect(url: &str) -> anyhow::Result<Self> {
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES);
        let connecting = connect_async_with_config(url, Some(config), true);
        let (stream, _) = timeout(SILENCE_MAX, connecting)
            .await
            .with_context(|| format!("{url} is silent"))?
            .with_context(|| format!("cannot connect to {url}"))?;
        Ok(Self { stream })
    }

    /// The connection itself, for who only listens from now on.
    pub fn into_listener(self) -> anyhow::Result<std::net::TcpStream> {
        match self.stream.into_inner() {
            MaybeTlsStream::Plain(stream) => Ok(stream.into_std()?),
            _ => bail!("only ws:// can be listened to"),
        }
    }

    pub async fn send(&mut self, text: String) -> anyhow::Result<()> {
        Ok(self.stream.send(Message::text(text)).await?)
    }

    /// Several at once.
    pub async fn feed(&mut self, text: String) -> anyhow::Result<()> {
        Ok(self.stream.feed(Message::text(text)).await?)
    }

    pub async fn flush(&mut self) -> anyhow::Result<()> {
        Ok(self.stream.flush().await?)
    }

    pub async fn next(&mut self) -> anyhow::Result<Utf8Bytes> {
        loop {
            match timeout(SILENCE_MAX, self.stream.next()).await.context("the relay is silent")? {
                Some(Ok(Message::Text(text))) => return Ok(text),
                Some(Ok(Message::Close(_))) | None => bail!("the relay closed the connection"),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
            }
        }
    }

    /// Subscribes and takes what is stored; returns how many events that was.
    pub async fn request(&mut self, sub: &str, filter: &str) -> anyhow::Result<usize> {
        self.send(format!("[\"REQ\",\"{sub}\",{filter}]")).await?;
        let mut events = 0;
        loop {
            let message = self.next().await?;
            match message.as_str() {
                text if text.starts_with("[\"EVENT\"") => events += 1,
                text if text.starts_with("[\"EOSE\"") => return Ok(events),
                other => bail!("a question was answered with {other}"),
            }
        }
    }
}

/// The id in an OK true.
pub fn accepted(message: &str) -> anyhow::Result<&str> {
    let rest = message.strip_prefix("[\"OK\",\"").and_then(|rest| rest.split_once('"'));
    match rest {
        Some((id, rest)) if rest.trim_start_matches([',', ' ']).starts_with("true") => Ok(id),
        _ => bail!("an event was answered with {message}"),
    }
}
