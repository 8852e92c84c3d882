use kukuri_index::{Effects, Model};

use crate::corpus::Corpus;
use crate::scene::HEAD;

fn model(effects: Effects) -> Model {
    let mut model = Model::default();
    model.apply(effects);
    model
}

#[test]
fn judged_questions_find_what_people_expect_in_their_order() {
    let corpus = Corpus::read();
    let model = model(corpus.effects());
    let faults: Vec<String> = corpus
        .queries
        .iter()
        .flat_map(|query| corpus.faults(query, &model.search(&corpus.ask(query), HEAD)))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(corpus.queries.len() >= 75, "the set has not shrunk");
}

/// The judge must notice what is missing, what is too much and what is out of order.
#[test]
fn wrong_answers_are_noticed() {
    let corpus = Corpus::read();
    let model = model(corpus.effects());
    let query = corpus.queries.iter().find(|query| query.ask == "run relay").expect("is judged");
    let answer = model.search(&corpus.ask(query), HEAD);
    let mut missing = answer.clone();
    missing.hits.pop();
    let mut swapped = answer.clone();
    swapped.hits.reverse();
    let other = corpus.queries.iter().find(|query| query.ask == "犬").expect("is judged");
    let foreign = model.search(&corpus.ask(other), HEAD);
    for wrong in [missing, swapped, foreign] {
        assert!(!corpus.faults(query, &wrong).is_empty());
    }
    assert!(corpus.faults(query, &answer).is_empty());
}
