//! Prints the OpenAPI document: `cargo run -p kukuri-api --example openapi > docs/openapi.json`.

fn main() {
    print!("{}", kukuri_api::document());
}
