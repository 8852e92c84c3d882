//! Configuration, and what the operator sees of a running node.

use std::fs;
use std::path::Path;

use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::condition::wait_for;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::stream::MaybeTlsStream;

use crate::running::Running;
use crate::site::{LIMIT, Site, ended, system_time};

/// Flags before the environment, the environment before the file, and the file before the defaults.
pub fn settings_come_in_layers(site: &Site) {
    let file = site.path("kukuri.toml");
    fs::write(&file, "[relay]\nname = 'file'\ndescription = 'file'\n[limits]\nfilters_max = 3\n[limits.events_per_ip]\nburst = 7\n")
        .unwrap();
    let shown = |variables: &[(&str, &str)], args: &[&str]| {
        let mut command = site.command_now(&["config", "--config", file.to_str().unwrap()]);
        ended(command.args(args).envs(variables.iter().copied())).ok().stdout
    };
    let text = shown(&[("KUKURI_RELAY_NAME", "environment")], &[]);
    for line in [
        "name = \"environment\"",
        "description = \"file\"",
        "filters_max = 3",
        "limit_max = 500",
        "burst = 7",
        "per_minute = 600",
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line} in {text}");
    }
    let text = shown(&[("KUKURI_NETWORK", "kukuri:two:")], &["--network", "kukuri:three:"]);
    assert!(text.contains("network = \"kukuri:three:\""), "{text}");
    // What is printed is a configuration, and says the same again.
    fs::write(&file, &text).unwrap();
    assert_eq!(shown(&[], &[]), text.replace("kukuri:two:", "kukuri:three:"));
    // The example sets nothing.
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kukuri.example.toml");
    fs::copy(example, &file).unwrap();
    assert_eq!(shown(&[], &[]), ended(&mut site.command_now(&["config"])).ok().stdout);
    let text = shown(&[("KUKURI_DATABASE", "postgres://u:secret@host/db?password=secret")], &[]);
    assert!(site.place_option() == "check --database;" || text.contains("postgres://u@host/db"));
    assert!(!text.contains("secret"), "{text}");
}

/// An error says which setting it is about, and where it is.
pub fn wrong_settings_are_named(site: &Site) {
    let file = site.path("kukuri.toml");
    let path = file.to_str().unwrap().to_owned();
    for (text, named) in [
        ("[relay]\nlisen = '127.0.0.1:1'", "line 2"),
        ("[relay]\nlisen = '127.0.0.1:1'", "lisen"),
        ("[relay]\nlisten = 'everywhere'", "listen = 'everywhere'"),
        ("[limits]\nfilters_max = 0", "limits.filters_max (KUKURI_LIMITS_FILTERS_MAX)"),
        ("[limits]\nmessage_bytes_max = 1024", "limits.message_bytes_max"),
        ("[relay]\nurls = ['relay.example']", "relay.urls"),
        ("[relay]\ntrusted_proxies = ['10.0.0.0/33']", "relay.trusted_proxies"),
        ("network = 'Main'", "network"),
    ] {
        fs::write(&file, text).unwrap();
        ended(&mut site.command_now(&["config", "--config", &path])).code(2).says(named);
    }
    let unknown = [("KUKURI_AUTH_MODE", "required"), ("KUKURI_RELAY_LISTEN", "0.0.0.0:0")];
    ended(site.command_now(&["config"]).envs(unknown)).code(2).says("relay.urls");
    let missing = site.path("none.toml");
    ended(&mut site.command_now(&["config", "--config", missing.to_str().unwrap()]))
        .code(2)
        .says("none.toml");
    for (name, text) in
        [("KUKURI_LIMITS_FILTERS_MAX", "many"), ("KUKURI_RELAY_LISEN", "127.0.0.1:1")]
    {
        ended(site.command_now(&["config"]).env(name, text)).code(2).says(name);
    }
}

/// A reserve on the disk of a server needs a directory that can be looked at by who takes events in; a store without a
/// server needs none, and is not to be taken for one that has been given some.
pub fn the_disk_of_a_server_is_named(site: &Site) {
    const KEY: &str = "capacity.database_directory";
    let file = site.path("kukuri.toml");
    let with = |directory: &Path, args: &[&str]| {
        fs::write(&file, format!("[capacity]\ndatabase_directory = '{}'\n", directory.display()))
            .unwrap();
        ended(site.command_now(args).arg("--config").arg(&file))
    };
    let (there, none) = (site.path(""), site.path("none"));
    if site.has_own_disk() {
        with(&there, &["topic", "add", "x"]).code(2).says(KEY).says("`database`");
        return;
    }
    with(&none, &["import", "-"]).code(1).says(KEY).says("none is on");
    with(&none, &["run"]).code(1).says(KEY).says("none is on");
    // Who stands where the disk is not in sight still looks after the node.
    with(&none, &["topic", "add", "y"]).ok();
    with(&none, &["status"]).ok();
    assert!(with(&there, &["config"]).ok().stdout.contains("\ndatabase_directory = "));
    with(&there, &["topic", "add", "x"]).ok();
}

/// Whether it lives, whether it can serve, and its numbers.
pub fn the_operator_sees_how_the_node_is(site: &Site) {
    let running = Running::start(site, &[]);
    let get = |path: &str| Running::get(&running.admin, path, "*/*");
    assert!(get("/healthz").0.starts_with("HTTP/1.1 200"));
    let (head, body) = get("/readyz");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let ready = r#"{"lane":"ok","live":"ok","ready":true,"relay":"ok","store":"ok"}"#;
    assert_eq!(body.trim_end(), ready);
    let (_, metrics) = get("/metrics");
    for name in [
        "kukuri_relay_connections 0",
        "kukuri_lane_batches_total ",
        "kukuri_fanout_position ",
        "kukuri_lane_running 1",
    ] {
        assert!(metrics.lines().any(|line| line.starts_with(name)), "{name} in {metrics}");
    }
    assert!(get("/").0.starts_with("HTTP/1.1 404"));
    running.end();
}

/// Who has to prove what can be changed while the node runs; a mistake changes nothing.
pub fn the_auth_mode_is_read_again(site: &Site) {
    let file = site.path("kukuri.toml");
    let write = |text: &str| fs::write(&file, text).unwrap();
    write("[auth]\nmode = 'off'\n[log]\nformat = 'json'\n");
    let running = Running::start(site, &["--config", file.to_str().unwrap()]);
    let required = |wanted: &str| {
        let said = format!("\"auth_required\":{wanted}");
        running.nip11().contains(&said)
    };
    let read_again = |told: &str| {
        running.node.hang_up().unwrap();
        let heard = || running.node.stderr().contains(told).then_some(());
        wait_for("the log", LIMIT, heard).unwrap();
    };
    assert!(required("false"));
    write("[auth]\nmode = 'maybe'\n");
    read_again("the settings are as they were");
    assert!(required("false"));
    write("[auth]\nmode = 'required'\n[log]\nformat = 'json'\n");
    read_again("\"message\":\"the settings were read again\"");
    assert!(required("true"));
    running.end();
}

/// Whatever clients send, right or wrong, the log has none of it, and neither keys nor addresses.
pub fn the_log_does_not_tell_what_was_said_by_whom_or_from_where(site: &Site) {
    const MARK: &str = "nobodys-business";
    let mut command = site.command_now(&["run"]);
    let running =
        Running::spawn(command.env("KUKURI_LOG_LEVEL", "debug").env("KUKURI_LOG_FORMAT", "json"));
    let (mut socket, _) = tungstenite::connect(&running.url).unwrap();
    let MaybeTlsStream::Plain(stream) = socket.get_ref() else { panic!("no TLS here") };
    let from = stream.local_addr().unwrap().to_string();
    let author = Author::numbered(1);
    let draft = |kind| Draft::new(kind, system_time()).tag("t", "kukuri:global").tag("x", MARK);
    let event = author.sign(&Draft { content: MARK.to_owned(), ..draft(1) });
    let forged = event.replacen("\"sig\":\"", "\"sig\":\"00", 1);
    let key = author.pubkey().to_hex();
    let said = [
        format!("[\"EVENT\",{event}]"),
        format!("[\"EVENT\",{event}]"),
        format!("[\"EVENT\",{forged}]"),
        format!("[\"EVENT\",{}]", author.sign(&draft(22_242))),
        format!("[\"REQ\",\"{MARK}\",{{\"#t\":[\"kukuri:global\"],\"authors\":[\"{key}\"]}}]"),
        format!("[\"REQ\",\"s\",{{\"#t\":[\"{MARK}\"]}}]"),
        format!("[\"AUTH\",{}]", author.sign(&draft(22_242))),
        format!("[\"{MARK}\""),
        MARK.repeat(20_000),
    ];
    for message in said {
        let _ = socket.send(message.into());
    }
    // It answers until it has had enough of what is too long, and then the connection ends.
    while socket.read().is_ok() {}
    // Something that is told, so that an empty log is no proof.
    running.node.hang_up().unwrap();
    let heard = || running.node.stderr().contains("settings were read again").then_some(());
    wait_for("the log", LIMIT, heard).unwrap();
    let log = running.node.stderr();
    for secret in [MARK, &key, &from] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
    running.end();
}
