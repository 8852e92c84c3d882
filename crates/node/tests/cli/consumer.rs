use crate::site::{Site, notes};

pub fn an_unknown_consumer_is_an_error(site: &Site) {
    site.run(&["consumer", "list"]).code(1).says("no store");
    site.import(&notes(1)).ok();
    for line in site.run(&["consumer", "list"]).ok().stdout.lines() {
        site.run(&["consumer", "status", line]).ok();
    }
    let commands: [&[&str]; 7] = [
        &["status", "nobody"],
        &["pause", "nobody"],
        &["resume", "nobody"],
        &["replay", "nobody", "--from", "1"],
        &["rebuild", "nobody"],
        &["parked", "list", "nobody"],
        &["parked", "retry", "nobody", "--all"],
    ];
    for command in commands {
        let arguments: Vec<&str> = [&["consumer"], command].concat();
        site.run(&arguments).code(1).says("there is no consumer nobody");
    }
    site.run(&["consumer", "replay", "nobody", "--from", "0"]).code(2);
    site.run(&["consumer", "parked", "discard", "nobody"]).code(2);
    site.run(&["consumer", "rebuild", "nobody", "--accept", "--cancel"]).code(2);
}
