//! Why a request is not answered: one closed list, in one shape.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use kukuri_core::admission::Verdict;
use kukuri_index::{AskError, CursorError, QueryError};
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::Reply;
use crate::finder::Unavailable;

/// When to try again after a refusal that time will undo.
const RETRY_AFTER_SECONDS: u64 = 60;
const UNAVAILABLE_RETRY_AFTER_SECONDS: u64 = 5;

/// What programs go by. Names are never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    InvalidRequest,
    InvalidTopic,
    InvalidQuery,
    InvalidCursor,
    AuthRequired,
    AccessDenied,
    NotFound,
    TopicNotHandled,
    SearchOff,
    MethodNotAllowed,
    RateLimited,
    Unavailable,
}

/// Why. The texts are for people who write programs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{parameter} is missing")]
    Missing { parameter: &'static str },
    #[error("{parameter} is there more than once")]
    Twice { parameter: &'static str },
    #[error("{parameter} is no text in UTF-8")]
    NotText { parameter: &'static str },
    #[error("no such parameter: there are {known}")]
    Unknown { known: String },
    #[error("limit is no number from 1 to {max}")]
    Limit { max: usize },
    #[error(
        "topic is no topic id: kukuri:<64 lowercase hex>, kukuri:global or kukuri:user:<64 lowercase hex>"
    )]
    Topic,
    #[error("{0}")]
    Question(AskError),
    #[error(
        "reading needs a proof of who you are here, which this interface does not take: ask over the relay"
    )]
    AuthRequired,
    #[error("you may not read this")]
    Denied,
    #[error("there is nothing here: /v1/openapi.json tells what there is")]
    NotFound,
    #[error("this node does not carry the topic: /v1/topics lists those it does")]
    TopicNotHandled,
    #[error("there is no search here")]
    SearchOff,
    #[error("this is for GET")]
    Method,
    #[error("too many requests, slow down")]
    RateLimited,
    #[error("{0}")]
    Unavailable(Unavailable),
}

/// The body of every refusal.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RefusalBody {
    code: Code,
    /// For people.
    message: String,
    details: Details,
}

#[derive(Debug, Default, Serialize, ToSchema)]
struct Details {
    /// The parameter that is at fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameter: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
}

impl Refusal {
    pub fn code(&self) -> Code {
        match self {
            Self::Missing { .. }
            | Self::Twice { .. }
            | Self::NotText { .. }
            | Self::Unknown { .. }
            | Self::Limit { .. } => Code::InvalidRequest,
            Self::Topic => Code::InvalidTopic,
            Self::Question(AskError::Cursor(_)) => Code::InvalidCursor,
            Self::Question(_) => Code::InvalidQuery,
            Self::AuthRequired => Code::AuthRequired,
            Self::Denied => Code::AccessDenied,
            Self::NotFound => Code::NotFound,
            Self::TopicNotHandled => Code::TopicNotHandled,
            Self::SearchOff => Code::SearchOff,
            Self::Method => Code::MethodNotAllowed,
            Self::RateLimited => Code::RateLimited,
            Self::Unavailable(_) => Code::Unavailable,
        }
    }

    fn status(&self) -> StatusCode {
        match self.code() {
            Code::InvalidRequest
            | Code::InvalidTopic
            | Code::InvalidQuery
            | Code::InvalidCursor => StatusCode::BAD_REQUEST,
            Code::AuthRequired => StatusCode::UNAUTHORIZED,
            Code::AccessDenied => StatusCode::FORBIDDEN,
            Code::NotFound | Code::TopicNotHandled | Code::SearchOff => StatusCode::NOT_FOUND,
            Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn details(&self) -> Details {
        let parameter = match self {
            Self::Missing { parameter }
            | Self::Twice { parameter }
            | Self::NotText { parameter } => Some(*parameter),
            Self::Limit { .. } => Some("limit"),
            Self::Topic | Self::TopicNotHandled => Some("topic"),
            Self::Question(AskError::Cursor(_)) => Some("cursor"),
            Self::Question(_) => Some("q"),
            _ => None,
        };
        let retry_after_seconds = match self {
            Self::RateLimited => Some(RETRY_AFTER_SECONDS),
            Self::Unavailable(_) => Some(UNAVAILABLE_RETRY_AFTER_SECONDS),
            _ => None,
        };
        Details { parameter, retry_after_seconds }
    }

    /// What a verdict about reading comes to.
    pub(crate) fn of(verdict: Verdict) -> Result<(), Self> {
        match verdict {
            Verdict::Admit => Ok(()),
            Verdict::AuthRequired => Err(Self::AuthRequired),
            Verdict::Restricted | Verdict::Blocked => Err(Self::Denied),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let details = self.details();
        let retry_after = details.retry_after_seconds;
        let body = RefusalBody { code: self.code(), message: self.to_string(), details };
        let mut response = (self.status(), Reply(body)).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        match self {
            // The scheme of NIP-98, which this interface will take.
            Self::AuthRequired => {
                headers.insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Nostr"));
            }
            Self::Method => {
                headers
                    .insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD, OPTIONS"));
            }
            _ => {}
        }
        response
    }
}

impl From<AskError> for Refusal {
    fn from(error: AskError) -> Self {
        Self::Question(error)
    }
}

impl From<QueryError> for Refusal {
    fn from(error: QueryError) -> Self {
        Self::Question(error.into())
    }
}

impl From<CursorError> for Refusal {
    fn from(error: CursorError) -> Self {
        Self::Question(error.into())
    }
}

impl From<Unavailable> for Refusal {
    fn from(why: Unavailable) -> Self {
        Self::Unavailable(why)
    }
}
