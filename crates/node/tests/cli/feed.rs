use crate::site::{NOW, Site, id, note, notes, signed};

pub fn a_row_has_the_fields_that_are_promised(site: &Site) {
    let (old, new) =
        (signed(1, 30_023, 20, &[("d", "a:b")]), signed(1, 30_023, 10, &[("d", "a:b")]));
    site.import(&[old.clone(), new.clone()]).ok();
    let feed = site.run(&["feed"]).ok().stdout;
    let pubkey = kukuri_event::Event::parse(&new).unwrap().pubkey();
    let row = |seq: i64, op: &str, line: &str, age: i64, reason: &str| {
        format!(
            "{{\"seq\":{seq},\"op\":\"{op}\",\"event_id\":\"{}\",\"topic_id\":\"kukuri:global\",\
             \"prior\":[],\"kind\":30023,\"pubkey\":\"{pubkey}\",\"created_at\":{},\
             \"ingested_at\":{},\"effective_key\":\"30023:{pubkey}:a:b\",\"reason\":{reason},\
             \"source\":\"import\",\"via\":null}}\n",
            id(line),
            NOW.0 - age,
            NOW.0 * 1000,
        )
    };
    let expected = [
        row(1, "upsert", &old, 20, "null"),
        row(2, "delete", &old, 20, "\"superseded\""),
        row(3, "upsert", &new, 10, "null"),
    ];
    assert_eq!(feed, expected.concat());
}

pub fn rows_can_be_read_from_anywhere(site: &Site) {
    site.topics();
    assert_eq!(site.run(&["feed"]).ok().stdout, "");
    site.import(&notes(5)).ok();
    for after in 0..=5 {
        let rows = site.run(&["feed", "--after", &after.to_string()]).ok().json();
        let seqs: Vec<i64> = rows.iter().map(|row| row["seq"].as_i64().unwrap()).collect();
        assert_eq!(seqs, (after + 1..=5).collect::<Vec<_>>());
    }
    let rows = site.run(&["feed"]).ok().json();
    assert_eq!(rows[0]["effective_key"], serde_json::Value::Null);
    assert_eq!(rows[4]["event_id"], id(&note(5)));
}

pub fn a_place_beyond_the_feed_is_an_error(site: &Site) {
    site.import(&notes(5)).ok();
    let ended = site.run(&["feed", "--after", "6"]).code(1);
    ended.says("after row 6").says("beyond its head 5: rebuild");
    site.run(&["feed", "--after", "6", "--follow"]).code(1);
    site.run(&["feed", "--after", "-1"]).code(2);
}
