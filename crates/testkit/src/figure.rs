//! What was measured, for people.

/// Prints one figure of `whom` beside its limit.
pub fn figure(whom: &str, what: &str, value: f64, limit: Option<f64>) {
    let limit = match limit {
        Some(limit) if value <= limit => format!("at most {limit}: holds"),
        Some(limit) => format!("at most {limit}: MISSED"),
        None => "for comparison".to_owned(),
    };
    println!("# {whom}: {what}: {value:.2} ({limit})");
}
