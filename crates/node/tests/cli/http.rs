//! Questions over HTTP, on the address where clients connect.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;

use kukuri_store::conformance::signing::{Author, Draft};
use kukuri_testkit::condition::wait_for;
use kukuri_testkit::judged::{HOSTILE, Judged};
use serde_json::{Value, json};

use crate::running::{Running, patient};
use crate::search::{Asker, TOPIC, note, words};
use crate::site::{LIMIT, Site, ended, system_time, text};

pub fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

impl Running {
    /// One page of results.
    pub fn page(&self, topic: &str, words: &str, more: &str) -> (u16, Value) {
        self.api(&format!("/v1/search?topic={topic}&q={}{more}", encode(words)))
    }

    /// The events of all pages.
    fn pages(&self, topic: &str, words: &str, limit: usize) -> Vec<Value> {
        let (mut events, mut more) = (Vec::new(), format!("&limit={limit}"));
        loop {
            let (status, page) = self.page(topic, words, &more);
            assert_eq!(status, 200, "{page}");
            events.extend(page["items"].as_array().unwrap().iter().map(|i| i["event"].clone()));
            let Some(cursor) = page["next_cursor"].as_str() else { return events };
            more = format!("&limit={limit}&cursor={cursor}");
        }
    }

    /// Waits until exactly this is found.
    pub fn finds(&self, words: &str, expected: &[&str]) {
        let found = || {
            let (status, page) = self.page(TOPIC, words, "");
            let items = page["items"].as_array().filter(|_| status == 200)?;
            let found = items.iter().map(|item| item["event"]["content"].as_str().unwrap());
            found.eq(expected.iter().copied()).then_some(())
        };
        wait_for(&format!("{words} finds {expected:?}"), LIMIT, found).unwrap();
    }
}

/// The judged posts, as if they had been written just so long ago.
fn import(site: &Site, judged: &Judged) -> Vec<String> {
    let now = system_time().0;
    let names: BTreeSet<&str> = judged.posts.iter().map(|post| post.topic.as_str()).collect();
    let add = |name: &str| ended(&mut site.command_now(&["topic", "add", name])).ok().stdout;
    let topics: BTreeMap<&str, String> = names.iter().map(|name| (*name, add(name))).collect();
    let (mut lines, mut ids) = (Vec::new(), Vec::new());
    for post in &judged.posts {
        let topic = &topics[post.topic.as_str()];
        let created_at = kukuri_event::UnixSeconds(now - post.hours * 3600);
        let draft = Draft::new(post.kind, created_at).content(&post.text).tag("t", topic.trim());
        let draft = Draft { tags: [draft.tags, post.tags.clone()].concat(), ..draft };
        let event = Author::numbered(1).sign(&draft);
        let id = crate::site::id(&event);
        for like in 0..post.likes {
            let like_of = Draft::new(7, created_at).content("+").tag("t", topic.trim());
            lines.push(Author::numbered(1000 + like).sign(&like_of.tag("e", &id)));
        }
        lines.push(event);
        ids.push(id);
    }
    let file = site.file("judged.jsonl", &lines);
    ended(&mut site.command_now(&["import", text(&file)])).ok();
    ids
}

/// The same through both doors, and what people have judged to be right.
pub fn http_and_nip50_find_what_people_expect(site: &Site) {
    let judged = Judged::read();
    let ids = import(site, &judged);
    let topic = ended(&mut site.command_now(&["topic", "id", "main"])).ok().stdout;
    let topic = topic.trim();
    let running = Running::spawn(&mut patient(site));
    let mut asker = Asker::connect(&running);
    wait_for("the index", LIMIT, || {
        let (status, page) = running.page(topic, "猫", "");
        let indexed = running.metric("kukuri_consumer_lag_rows") == Some(0.0);
        (status == 200 && indexed && page["items"] != json!([])).then_some(())
    })
    .unwrap();
    let mut faults = Vec::new();
    for query in &judged.queries {
        let over_http = running.pages(topic, &query.ask, 3);
        let over_relay = asker.events(json!({"#t": [topic], "search": query.ask}));
        assert_eq!(over_relay.as_ref(), Ok(&over_http), "{}", query.ask);
        let name = |event: &Value| {
            let place = ids.iter().position(|id| event["id"] == *id).unwrap();
            judged.posts[place].name.as_str()
        };
        faults.extend(query.faults(&over_http.iter().map(name).collect::<Vec<_>>()));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    running.end();
}

pub fn what_is_gone_is_not_found_over_http(site: &Site) {
    let running = Running::spawn(&mut patient(site));
    let mut asker = Asker::connect(&running);
    let now = system_time();
    let article = |age: i64, content: &str| {
        let draft = Draft::new(30_023, kukuri_event::UnixSeconds(now.0 - age)).tag("d", "a");
        draft.content(content)
    };
    let deleted = asker.publish(note("窓 deleted"));
    asker.publish(article(10, "窓 replaced"));
    asker.publish(note("窓 expired").tag("expiration", now.0 + 4));
    asker.publish(note("窓 stays"));
    let all = |count: usize| {
        let found = || {
            let (status, page) = running.page(TOPIC, "窓", "");
            (status == 200 && page["items"].as_array().unwrap().len() == count).then_some(())
        };
        wait_for(&format!("{count} are found"), LIMIT, found).unwrap();
    };
    wait_for("all are found once", LIMIT, || {
        let (status, page) = running.page(TOPIC, "窓", "");
        let found = (status == 200).then(|| page["items"].as_array().unwrap().len())?;
        // A slow machine may have missed the one that expires.
        (found == 4 || system_time().0 >= now.0 + 4 && found == 3).then_some(())
    })
    .unwrap();
    asker.publish(Draft::new(5, system_time()).tag("e", deleted.id().to_hex()));
    asker.publish(article(0, "a newer version, without the word"));
    all(1);
    running.finds("窓", &["窓 stays"]);
    running.finds("newer version", &["a newer version, without the word"]);
    running.end();
}

/// Through both doors, and through both alike.
pub fn hostile_questions_are_answered_or_refused(site: &Site) {
    let running = Running::spawn(&mut patient(site));
    let mut asker = Asker::connect(&running);
    for content in ["alpha", "beta", "alpha beta", "gamma 日本語 100%"] {
        asker.publish(note(content));
    }
    running.finds("gamma", &["gamma 日本語 100%"]);
    for text in HOSTILE {
        let (status, answer) = running.page(TOPIC, text, "");
        let over_relay = asker.events(words(text));
        match status {
            200 => {
                let items = answer["items"].as_array().unwrap();
                // Of four notes that share no word, no question finds all.
                assert!(items.len() < 4, "{text:?}");
                let events = items.iter().map(|item| item["event"].clone()).collect();
                assert_eq!(over_relay, Ok(events), "{text:?}");
            }
            _ => {
                assert_eq!((status, &answer["code"]), (400, &json!("INVALID_QUERY")), "{text:?}");
                let refused = over_relay.unwrap_err();
                assert!(refused.starts_with("invalid: "), "{text:?}: {refused}");
            }
        }
        // No topic here has a name.
        let (status, answer) = running.api(&format!("/v1/topics?q={}", encode(text)));
        assert!(status == 400 || answer["items"] == json!([]), "{text:?}: {answer}");
    }
    let long = "x".repeat(10_000);
    let refused = asker.search(words(&long)).unwrap_err();
    assert!(refused.starts_with("invalid: the question is too long"), "{refused}");
    let topic = format!("/v1/search?topic={TOPIC}");
    for (path, code) in [
        (format!("{topic}&q={long}"), "INVALID_QUERY"),
        (format!("{topic}&q="), "INVALID_QUERY"),
        (format!("{topic}&q=%00"), "INVALID_QUERY"),
        (format!("{topic}&q=alpha&cursor={long}"), "INVALID_CURSOR"),
        (format!("{topic}&q=alpha&cursor=%00"), "INVALID_CURSOR"),
        (format!("{topic}&q=alpha&cursor={}", "00".repeat(37)), "INVALID_CURSOR"),
        (format!("{topic}&q=%ff%fe"), "INVALID_REQUEST"),
        (format!("{topic}&q=%"), "INVALID_QUERY"),
        (format!("{topic}&q=alpha&limit=-1"), "INVALID_REQUEST"),
        (format!("{topic}&q=alpha&limit=51"), "INVALID_REQUEST"),
        (format!("{topic}&q=alpha&offset=1"), "INVALID_REQUEST"),
        (format!("{topic}%00&q=alpha"), "INVALID_TOPIC"),
        (format!("/v1/search?q=alpha&topic={long}"), "INVALID_TOPIC"),
        ("/v1/..%2f..%2fetc/passwd".to_owned(), "NOT_FOUND"),
    ] {
        let (status, answer) = running.api(&path);
        assert!((400..500).contains(&status), "{path}: {status}");
        assert_eq!(answer["code"], code, "{path}: {answer}");
        assert!(answer.to_string().len() < 1000, "what was sent is not sent back: {path}");
    }
    for raw in [
        format!("GET /v1/search?q={} HTTP/1.1\r\n\r\n", "x".repeat(100_000)).as_bytes(),
        b"GET /v1/search?q=\0\xff HTTP/1.1\r\n\r\n",
        b"POST /v1/search HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
        b"\x16\x03\x01\x02\x00",
        b"GET /v1/topics HTTP/9.9\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(&running.url["ws://".len()..]).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        // A node that has heard enough may have closed the connection before all is written.
        let _ = stream.write_all(raw);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "{}", String::from_utf8_lossy(&answer));
    }
    let head = |bytes: usize| {
        let start = "GET /v1/topics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Pad: ";
        format!("{start}{}\r\n\r\n", "x".repeat(bytes - start.len() - 4))
    };
    for (bytes, expected) in [(16 * 1024, "HTTP/1.1 200"), (16 * 1024 + 1, "HTTP/1.1 431")] {
        let mut stream = TcpStream::connect(&running.url["ws://".len()..]).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let _ = stream.write_all(head(bytes).as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(expected), "a head of {bytes} bytes: {answer}");
    }
    // What a question of its own would have done to the tables, these would notice.
    running.finds("gamma", &["gamma 日本語 100%"]);
    assert_eq!(asker.search(words("beta")).unwrap().len(), 2);
    running.end();
}

pub fn topics_are_found_by_their_names(site: &Site) {
    let add = |name: &str| site.run(&["topic", "add", name]).ok().stdout.trim().to_owned();
    let (kansai, _) = (add("Rust in Kansai"), add("ビットコイン"));
    let user = format!("kukuri:user:{}", Author::numbered(1).pubkey());
    add(&user);
    // Known by its id alone, as it comes from another node.
    let osaka = site.run(&["topic", "id", "大阪"]).ok().stdout.trim().to_owned();
    add(&osaka);
    let running = Running::spawn(&mut patient(site));
    let ids = |path: &str| -> Vec<String> {
        let (status, answer) = running.api(path);
        assert_eq!(status, 200, "{answer}");
        let items = answer["items"].as_array().unwrap().iter();
        items.map(|item| item["topic_id"].as_str().unwrap().to_owned()).collect()
    };
    let find = |name: &str| ids(&format!("/v1/topics?q={}", encode(name)));
    assert_eq!(find("ＲＵＳＴ　kans"), [kansai.as_str()]);
    assert_eq!(find("ﾋﾞｯﾄｺｲﾝ").len(), 1);
    assert_eq!(find("大阪"), [osaka.as_str()]);
    assert_eq!(find(&osaka), [osaka]);
    for nothing in ["kukuri", &user, "%", "'"] {
        assert_eq!(find(nothing), Vec::<String>::new(), "{nothing}");
    }
    let listed = ids("/v1/topics");
    assert_eq!(listed.len(), 4, "{listed:?}");
    assert!(!listed.contains(&user));
    // What is carried no longer is not shown.
    site.run(&["topic", "disable", "Rust in Kansai"]).ok();
    wait_for("the topic is gone", LIMIT, || find("kansai").is_empty().then_some(())).unwrap();
    let (status, answer) = running.page(&kansai, "a", "");
    assert_eq!((status, &answer["code"]), (404, &json!("TOPIC_NOT_HANDLED")));
    running.end();
}

/// Proofs, rates, and whether there is a search: as over the relay.
pub fn http_goes_by_the_rules_of_the_relay(site: &Site) {
    let closed = Running::start(site, &["--auth", "required"]);
    for path in [&format!("/v1/search?topic={TOPIC}&q=a"), "/v1/topics", "/v1/topics?q=a"] {
        let (status, answer) = closed.api(path);
        assert_eq!((status, &answer["code"]), (401, &json!("AUTH_REQUIRED")), "{path}");
    }
    closed.end();

    let mut command = site.command_now(&["run"]);
    command.env("KUKURI_LIMITS_REQUESTS_PER_IP_BURST", "3").env("KUKURI_SEARCH_MODE", "off");
    let narrow = Running::spawn(command.env("KUKURI_LIMITS_REQUESTS_PER_IP_PER_MINUTE", "1"));
    let (status, answer) = narrow.page(TOPIC, "a", "");
    assert_eq!((status, &answer["code"]), (404, &json!("SEARCH_OFF")));
    let codes: Vec<u16> = (0..3).map(|_| narrow.api("/v1/topics").0).collect();
    assert_eq!(codes, [200, 200, 429]);
    assert_eq!(narrow.api("/v1/nothing").1["code"], "RATE_LIMITED");
    assert_eq!(narrow.metric("kukuri_api_requests_total"), Some(5.0));
    narrow.end();
}
