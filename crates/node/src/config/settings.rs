//! All settings by name, with what is to be said of them. The example file is made from this.

use std::fmt::Write;

use toml::{Table, Value};

use super::Config;

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its place in the file.
    pub key: &'static str,
    pub help: &'static str,
    /// What it may look like, if it has no default.
    pub example: Option<&'static str>,
    /// The flag that sets it, too.
    pub flag: Option<&'static str>,
}

const fn setting(key: &'static str, help: &'static str) -> Setting {
    Setting { key, help, example: None, flag: None }
}

const fn flagged(key: &'static str, flag: &'static str, help: &'static str) -> Setting {
    Setting { key, help, example: None, flag: Some(flag) }
}

impl Setting {
    const fn such_as(self, example: &'static str) -> Self {
        Self { example: Some(example), ..self }
    }

    /// The variable of the environment that sets it.
    pub fn variable(&self) -> String {
        format!("KUKURI_{}", self.key.replace('.', "_").to_uppercase())
    }

    /// Everything that sets it, for an error.
    pub fn sources(&self) -> String {
        let flag = self.flag.map(|flag| format!(", {flag}")).unwrap_or_default();
        format!("{} ({}{flag})", self.key, self.variable())
    }

    /// A text as the kind of value that the setting takes. What does not read as one stays a text, and
    /// is refused as such.
    pub fn read(&self, text: &str) -> Value {
        let read = match self.value() {
            Value::Integer(_) => number(text),
            Value::Array(of) => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                let numbers = matches!(of[..], [Value::Integer(_), ..]);
                let read = |part| number(part).filter(|_| numbers).unwrap_or(Value::from(part));
                Some(Value::Array(parts.map(read).collect()))
            }
            _ => None,
        };
        read.unwrap_or_else(|| Value::from(text))
    }

    /// The default, or else the example.
    fn value(&self) -> Value {
        let default = Table::try_from(Config::default()).expect("settings are plain data");
        let default =
            self.key.split('.').try_fold(Value::Table(default), |at, part| at.get(part).cloned());
        let example = || {
            let line = format!("x = {}", self.example.unwrap_or("\"\""));
            let table: Table = toml::from_str(&line).expect("examples are TOML");
            table["x"].clone()
        };
        default.unwrap_or_else(example)
    }
}

fn number(text: &str) -> Option<Value> {
    text.parse().ok().map(Value::Integer)
}

pub fn known(wanted: impl Fn(&Setting) -> bool) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| wanted(setting))
}

/// A file with every setting, its meaning and its default, in which nothing is set yet.
pub fn example() -> String {
    let mut text = String::from(
        "# Settings of a kukuri node, with their defaults. Take the # away to change one.\n\
         # The environment comes before this file (its names stand beside the settings), and flags\n\
         # come before both. `kukuri-node config` prints what is in force.\n",
    );
    let mut section = "";
    for setting in SETTINGS {
        let (at, name) = setting.key.rsplit_once('.').unwrap_or(("", setting.key));
        if at != section {
            section = at;
            let _ = write!(text, "\n[{at}]\n");
        }
        let _ = write!(
            text,
            "\n# {}\n# {}\n#{name} = {}\n",
            setting.help,
            setting.variable(),
            setting.value()
        );
    }
    text
}

pub static SETTINGS: &[Setting] = &[
    flagged("data", "--data", "Where everything is kept; made if it is not there."),
    flagged(
        "database",
        "--database",
        "A PostgreSQL database to keep events in, in place of the data directory.",
    )
    .such_as("\"postgres://kukuri@localhost/kukuri\""),
    setting(
        "wakeup",
        "How a node on PostgreSQL learns what other processes have written there: \"notify\", or \"poll\" where notifications (LISTEN) do not arrive; then it looks every 1.5 seconds. What it writes itself it knows at once.",
    ),
    flagged(
        "network",
        "--network",
        "The network whose topics are meant: it is hashed with every topic name.",
    ),
    flagged(
        "relay.listen",
        "--listen",
        "Where clients connect. Put a proxy that speaks TLS in front of it.",
    ),
    flagged(
        "relay.urls",
        "--url",
        "The addresses by which clients know the relay, such as wss://relay.example. Proofs of keys (NIP-42) are bound to them. Without any: ws:// and the address it listens on.",
    ),
    flagged("relay.name", "--name", "The name people see."),
    setting("relay.description", "What the relay is for, for people."),
    setting("relay.contact", "How to reach the operator.")
        .such_as("\"mailto:operator@relay.example\""),
    setting("relay.pubkey", "The operator's key, in hex.")
        .such_as("\"79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798\""),
    flagged(
        "relay.topicless",
        "--topicless",
        "What becomes of events and questions without a topic: \"reject\", or \"global\": taken for kukuri:global, so that any Nostr client can use the node.",
    ),
    flagged(
        "relay.trusted_proxies",
        "--trusted-proxy",
        "Proxies whose X-Forwarded-For is believed, as addresses or ranges, such as 127.0.0.1 or 10.0.0.0/8.",
    ),
    flagged(
        "auth.mode",
        "--auth",
        "Whether clients have to prove who they are (NIP-42): \"off\" or \"required\". SIGHUP makes a running node read this section again.",
    ),
    setting("auth.enforce_at", "From when on, in Unix time; without it, at once.")
        .such_as("1893456000"),
    setting(
        "auth.grace_seconds",
        "How long after that time who was connected before it may stay without a proof.",
    ),
    setting("auth.timeout_seconds", "How long a new connection may stay without a proof."),
    flagged(
        "admin.listen",
        "--admin",
        "Where /healthz, /readyz and /metrics are. Not for everyone: keep it on loopback or behind a firewall.",
    ),
    setting("log.level", "How much is logged: \"error\", \"warn\", \"info\" or \"debug\"."),
    setting("log.format", "\"text\", or \"json\": one object per line."),
    setting(
        "retention.regular_days",
        "How long events are kept from when they were taken in, where their topic does not say otherwise.",
    ),
    setting(
        "retention.history_days",
        "How long versions are kept that newer ones have replaced. Current versions stay.",
    ),
    setting("retention.deletion_days", "How long requests for deletion (kind 5) are kept."),
    setting(
        "retention.feed_days",
        "How long the feed is kept; who is further behind has to begin anew.",
    ),
    setting(
        "retention.clock",
        "\"doubt\": nothing ages, expires or is forgotten by a clock that is further ahead than can be; \"believe\": it is right.",
    ),
    setting("capacity.max_events", "How many events the node keeps; any number without it.")
        .such_as("10000000"),
    setting("capacity.max_bytes", "How many bytes its events may have together.")
        .such_as("10000000000"),
    setting(
        "capacity.on_full",
        "What happens then: \"evict\": the oldest leave, or \"refuse\": new ones are refused.",
    ),
    setting(
        "capacity.soft_percent",
        "From this part of them on, the node gives up backfill, then topics of low priority, then the oldest events.",
    ),
    setting(
        "capacity.disk_reserve_mib",
        "With less than this free on the disk, nothing but deletions is taken in, and with less than a quarter of it nothing at all; purging goes on. SQLite's log alone takes 128: leave it at 320 or more. On PostgreSQL it needs database_directory.",
    ),
    setting(
        "capacity.database_directory",
        "A directory on the disk that the server of the database keeps its files on, if that is a disk of this machine's; it is only asked how much is free. Without it there is no reserve on PostgreSQL. The server's log is on that disk as well, as a rule, and may take max_wal_size (1 GB unless set): leave disk_reserve_mib above that.",
    )
    .such_as("\"/var/lib/postgresql\""),
    setting(
        "search.mode",
        "Whether events can be found by their words (NIP-50): \"on\", or \"off\", which spares the work of indexing them. Turned on again, the index goes on where it stood, or is made anew.",
    ),
    setting(
        "search.kinds",
        "The kinds of events that are searched; encrypted ones cannot be. With other kinds the index is made anew from what is stored, while the old one is read.",
    ),
    setting(
        "search.stale_seconds",
        "From how many seconds on it is said in answers by how much the index is behind.",
    ),
    setting(
        "search.rebuild",
        "Who begins a new index when the old one does not lead on, because the feed has forgotten what comes next, a store was restored, or the program or the kinds are others: \"auto\", by itself, or \"manual\", when the operator says so (consumer rebuild search).",
    ),
    setting(
        "backfill.from",
        "Relays of other nodes that are asked for what this one has missed of its topics (NIP-77), such as ws://other.example:7777. Topics can say no (topic policy).",
    ),
    setting(
        "backfill.interval_seconds",
        "How often each topic is asked for, besides when the node starts, begins to carry it, or notices that it has missed something.",
    ),
    setting(
        "backfill.window_days",
        "How many days back, and at most what the topic keeps. Deletions are asked for as far back as they are kept.",
    ),
    setting(
        "backfill.per_second",
        "Events that are fetched in a second, from all relays together; 0 is any number.",
    ),
    setting(
        "backfill.events_max",
        "Events that one reconciliation fetches; what is left comes with the next one.",
    ),
    setting(
        "gossip.mode",
        "\"on\": the node meets others in the swarms of its topics, as soon as it has an address to listen on or a peer; \"off\": never.",
    ),
    setting(
        "gossip.listen",
        "Where other nodes connect (UDP). Without it and with peers: a free port on every address, for connections that this node makes.",
    )
    .such_as("\"0.0.0.0:7779\""),
    setting(
        "gossip.peers",
        "Nodes to meet, as their `kukuri-node gossip info` prints them: <id>@host:port, <id>|relay=<url>|addr=<host:port>, or <id> alone where discovery finds it. One is enough to find the others. If one says where its relay is, it is asked for what was missed.",
    ),
    setting(
        "gossip.relays",
        "Relay servers of iroh (https://...) through which nodes meet that cannot reach each other directly. None are needed between servers.",
    ),
    setting(
        "gossip.discovery",
        "How peers are found of which only the id is known: \"off\", or \"dns\": by the public name servers of n0, where this node is then listed, too.",
    ),
    setting(
        "gossip.mute_seconds",
        "How long a neighbour is not listened to that sends bad signatures, too large or too many messages; twice as long each further time, up to an hour.",
    ),
    setting(
        "gossip.neighbour.per_minute",
        "Messages of one neighbour, its own and those it passes on, in the long run; 0 is any number.",
    ),
    setting("gossip.neighbour.burst", "The same at once."),
    setting(
        "gossip.all.per_minute",
        "Messages of all neighbours in the long run; 0 is any number. What is over it is left to backfill.",
    ),
    setting("gossip.all.burst", "The same at once."),
    setting("limits.message_bytes_max", "A message of a client."),
    setting("limits.filters_max", "Filters of one REQ or COUNT."),
    setting(
        "limits.filter_values_max",
        "Ids, authors, kinds and tag values of one filter together.",
    ),
    setting("limits.limit_max", "Bounds the `limit` of each filter."),
    setting("limits.subscriptions_max", "Open subscriptions of one connection."),
    setting("limits.sub_id_chars_max", "Characters of a subscription id."),
    setting("limits.scan_rows_max", "Index rows that one REQ or COUNT may cost."),
    setting("limits.neg_sessions_max", "Reconciliations (NIP-77) that one connection has open."),
    setting("limits.neg_ids_max", "Ids that one of them is about."),
    setting("limits.neg_sessions_all_max", "Reconciliations of all connections."),
    setting("limits.neg_ids_all_max", "Ids that are held for all of them together: 40 bytes each."),
    setting(
        "limits.neg_ids_per_ip_max",
        "Ids that are held for those of one IPv4 address or one IPv6 /64.",
    ),
    setting(
        "limits.neg_idle_seconds_max",
        "How long a reconciliation may be silent before it is closed.",
    ),
    setting(
        "limits.neg_lifetime_seconds_max",
        "How long a reconciliation may last, however much is said.",
    ),
    setting(
        "limits.in_flight_events_max",
        "Events of one connection that wait for their OK; more are not read.",
    ),
    setting(
        "limits.outbound_bytes_max",
        "What waits to be sent on one connection; a live subscription that needs more falls behind.",
    ),
    setting("limits.lag_rows_max", "How far a subscription may fall behind before it is closed."),
    setting("limits.connections_max", "Connections of all clients."),
    setting("limits.connections_per_ip_max", "Connections of one IPv4 address or one IPv6 /64."),
    setting("limits.handshakes_max", "Connections that have not become a WebSocket yet."),
    setting("limits.handshake_seconds_max", "From the connection to the upgrade."),
    setting(
        "limits.ping_interval_seconds",
        "The time between pings; who stays silent for three of them is disconnected.",
    ),
    setting(
        "limits.stall_seconds_max",
        "How long nothing at all can be sent before a connection is given up.",
    ),
    setting("limits.node_topics_max", "Topics that the node carries at once."),
    setting("limits.senders_remembered_max", "How many addresses and keys the rates remember."),
    setting("limits.events.event_bytes_max", "The JSON of an event."),
    setting("limits.events.tags_max", "Tags of an event."),
    setting("limits.events.tag_value_bytes_max", "The first value of a single-letter tag."),
    setting("limits.events.topics_max", "Topics of an event."),
    setting("limits.events.deletion_targets_max", "`e` and `a` tags of a deletion."),
    setting("limits.events.future_seconds_max", "How far the time of an event may lie ahead."),
    setting(
        "limits.events.dedupe_retention_days",
        "How long ids are remembered; older events are refused.",
    ),
    setting(
        "limits.events_per_ip.per_minute",
        "EVENTs of one address in the long run; 0 is any number.",
    ),
    setting("limits.events_per_ip.burst", "EVENTs of one address at once."),
    setting(
        "limits.events_per_pubkey.per_minute",
        "Accepted events of one author in the long run; 0 is any number.",
    ),
    setting("limits.events_per_pubkey.burst", "Accepted events of one author at once."),
    setting(
        "limits.requests_per_ip.per_minute",
        "REQ, COUNT, AUTH, NEG-OPEN (once more for every 4096 ids), NEG-MSG and nonsense of one address in the long run; 0 is any number.",
    ),
    setting("limits.requests_per_ip.burst", "The same at once."),
    setting(
        "limits.connects_per_ip.per_minute",
        "New connections of one address in the long run; 0 is any number.",
    ),
    setting("limits.connects_per_ip.burst", "New connections of one address at once."),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn keys(table: &Table, at: &str, into: &mut BTreeSet<String>) {
        for (name, value) in table {
            let key = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
            match value {
                Value::Table(table) => keys(table, &key, into),
                _ => drop(into.insert(key)),
            }
        }
    }

    /// The example with every setting set is the default but for what has none; and no setting is
    /// missing from it, or more than once in it.
    #[test]
    fn the_example_has_every_setting() {
        let set: String = example()
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let all: Config = toml::from_str(&set).unwrap();
        let mut found = BTreeSet::new();
        keys(&Table::try_from(&all).unwrap(), "", &mut found);
        let known: BTreeSet<String> = SETTINGS.iter().map(|s| s.key.to_owned()).collect();
        assert_eq!(known, found);
        let mut standard = all;
        standard.database = None;
        (standard.relay.contact, standard.relay.pubkey, standard.auth.enforce_at) =
            (None, None, None);
        (standard.capacity.max_events, standard.capacity.max_bytes) = (None, None);
        standard.capacity.database_directory = None;
        standard.gossip.listen = None;
        assert_eq!(standard, Config::default());
    }

    #[test]
    fn the_example_that_is_shipped_is_this_one() {
        let shipped = include_str!("../../../../deploy/kukuri.example.toml");
        assert_eq!(
            shipped,
            example(),
            "run: kukuri-node config --example > deploy/kukuri.example.toml"
        );
    }
}
