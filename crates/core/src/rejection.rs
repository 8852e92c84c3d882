use kukuri_event::ParseError;

/// Why an event is refused, and the text that goes with `OK false`. The list is closed: every
/// refusal of every door is one of these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("invalid: event too large")]
    TooLarge,
    #[error("invalid: malformed event: {0}")]
    Malformed(ParseError),
    #[error("invalid: too many tags")]
    TooManyTags,
    #[error("invalid: tag value too long")]
    TagValueTooLong,
    #[error("invalid: too many topics")]
    TooManyTopics,
    #[error("invalid: too many deletion targets")]
    TooManyTargets,
    #[error("blocked: p2p-only")]
    P2pOnly,
    #[error("invalid: auth events are not stored")]
    AuthKind,
    #[error("invalid: missing topic")]
    MissingTopic,
    #[error("invalid: bad topic")]
    BadTopic,
    #[error("restricted: topic not handled here")]
    TopicNotHandled,
    #[error("invalid: created_at too far in the future")]
    TooNew,
    #[error("invalid: created_at too old")]
    TooOld,
    #[error("invalid: missing d")]
    MissingD,
    #[error("invalid: expired")]
    Expired,
    #[error("rate-limited: slow down")]
    RateLimited,
    #[error("invalid: id does not match")]
    IdMismatch,
    #[error("invalid: bad signature")]
    BadSignature,
    #[error("auth-required: authenticate to publish")]
    AuthRequired,
    #[error("restricted: not allowed to publish here")]
    Restricted,
    #[error("blocked: not accepted here")]
    Blocked,
    #[error("blocked: deleted by its author")]
    Deleted,
    #[error("error: storage full")]
    StorageFull,
    #[error("restricted: node is full")]
    NodeFull,
    #[error("restricted: topic is full")]
    TopicFull,
    #[error("restricted: topic is paused, the node is short of room")]
    TopicPaused,
    #[error("restricted: topic takes no backfill now")]
    NoBackfill,
}

impl Rejection {
    /// A short name for counters and reports, free of anything the sender wrote.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::Malformed(_) => "malformed",
            Self::TooManyTags => "too_many_tags",
            Self::TagValueTooLong => "tag_value_too_long",
            Self::TooManyTopics => "too_many_topics",
            Self::TooManyTargets => "too_many_targets",
            Self::P2pOnly => "p2p_only",
            Self::AuthKind => "auth_kind",
            Self::MissingTopic => "missing_topic",
            Self::BadTopic => "bad_topic",
            Self::TopicNotHandled => "topic_not_handled",
            Self::TooNew => "too_new",
            Self::TooOld => "too_old",
            Self::MissingD => "missing_d",
            Self::Expired => "expired",
            Self::RateLimited => "rate_limited",
            Self::IdMismatch => "id_mismatch",
            Self::BadSignature => "bad_signature",
            Self::AuthRequired => "auth_required",
            Self::Restricted => "restricted",
            Self::Blocked => "blocked",
            Self::Deleted => "deleted",
            Self::StorageFull => "storage_full",
            Self::NodeFull => "node_full",
            Self::TopicFull => "topic_full",
            Self::TopicPaused => "topic_paused",
            Self::NoBackfill => "no_backfill",
        }
    }
}
