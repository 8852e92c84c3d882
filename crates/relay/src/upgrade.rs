//! From an HTTP request to the socket behind it.

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Bytes;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;

/// A request for a WebSocket.
pub(crate) struct Upgrade {
    response: Response,
    upgraded: OnUpgrade,
}

/// A socket on which the client speaks WebSocket from now on.
pub(crate) struct Opened {
    pub stream: TcpStream,
    /// What came right behind the request.
    pub first: Bytes,
}

impl Upgrade {
    /// `None` if the request asks for something else.
    pub fn asked(mut request: Request) -> Option<Self> {
        let response = create_response_with_body(&request, Body::empty).ok()?;
        let upgraded = request.extensions_mut().remove::<OnUpgrade>()?;
        Some(Self { response, upgraded })
    }

    /// The answer to the client, and the socket once it has been sent; none if it cannot be.
    pub fn accept(self) -> (Response, impl Future<Output = Option<Opened>>) {
        let opened = async {
            let parts = self.upgraded.await.ok()?.downcast::<TokioIo<TcpStream>>().ok()?;
            Some(Opened { stream: parts.io.into_inner(), first: parts.read_buf })
        };
        (self.response, opened)
    }
}
