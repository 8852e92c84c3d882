//! Putting the layers together. Each is checked when it is added, so that an error names the place
//! that holds it.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::Config;
use super::check::check;
use super::settings::{Setting, known};

/// Variables that begin alike and are no settings: the file's name, and what tests and benches use.
const NOT_SETTINGS: [&str; 7] = [
    "KUKURI_CONFIG",
    "KUKURI_TEST_UNSAFE",
    "KUKURI_TORTURE",
    "KUKURI_SABOTAGE",
    "KUKURI_BENCH_",
    // Kubernetes tells every container about a service named `kukuri`.
    "KUKURI_SERVICE_",
    "KUKURI_PORT",
];

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {}: {error}", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error("in the configuration {}: {error}", path.display())]
    File { path: PathBuf, error: toml::de::Error },
    #[error("{name} is no setting: `kukuri-node config --example` lists them all")]
    UnknownVariable { name: String },
    #[error("{name} in the environment: {}", error.message())]
    Variable { name: String, error: toml::de::Error },
    #[error("{}: {why}", setting.sources())]
    Wrong { setting: &'static Setting, why: String },
}

/// Where settings come from, the last one first.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    pub flags: Vec<(&'static str, Value)>,
    pub environment: Vec<(String, String)>,
    pub file: Option<PathBuf>,
}

impl Layers {
    pub fn load(&self) -> Result<Config, ConfigError> {
        let mut table = Table::try_from(Config::default()).expect("settings are plain data");
        if let Some(path) = &self.file {
            overlay(&mut table, read(path)?);
        }
        for (name, text) in &self.environment {
            if !name.starts_with("KUKURI_")
                || NOT_SETTINGS.iter().any(|other| name.starts_with(other))
            {
                continue;
            }
            let setting = known(|setting| setting.variable() == *name);
            let setting =
                setting.ok_or_else(|| ConfigError::UnknownVariable { name: name.clone() })?;
            insert(&mut table, setting.key, setting.read(text));
            let checked = table.clone().try_into::<Config>();
            checked.map_err(|error| ConfigError::Variable { name: name.clone(), error })?;
        }
        for (key, value) in &self.flags {
            insert(&mut table, key, value.clone());
        }
        let config = table.try_into().expect("flags were checked when they were parsed");
        check(&config)?;
        Ok(config)
    }
}

/// The file as a table, after making sure that it is a configuration: only now are line numbers known.
fn read(path: &Path) -> Result<Table, ConfigError> {
    let path = path.to_owned();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return Err(ConfigError::Unreadable { path, error }),
    };
    match toml::from_str::<Config>(&text).and_then(|_| toml::from_str(&text)) {
        Ok(table) => Ok(table),
        Err(error) => Err(ConfigError::File { path, error }),
    }
}

/// Sections may be there in part: what they do not set stays as it was.
fn overlay(table: &mut Table, over: Table) {
    for (name, value) in over {
        match (table.get_mut(&name), value) {
            (Some(Value::Table(section)), Value::Table(over)) => overlay(section, over),
            (_, value) => drop(table.insert(name, value)),
        }
    }
}

fn insert(table: &mut Table, key: &str, value: Value) {
    match key.split_once('.') {
        None => drop(table.insert(key.to_owned(), value)),
        Some((section, rest)) => {
            let section = table.entry(section).or_insert_with(|| Table::new().into());
            if let Value::Table(section) = section {
                insert(section, rest, value);
            }
        }
    }
}
