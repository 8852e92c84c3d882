use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum ConsumerCommand {
    /// The names of all consumers.
    List,
    /// How far a consumer is, or all of them.
    Status {
        name: Option<String>,
        /// One JSON object per consumer.
        #[arg(long)]
        json: bool,
    },
    /// Let a consumer stand still, in every process.
    Pause { name: String },
    /// Let a consumer go on that was paused or has halted.
    Resume { name: String },
    /// Handle rows again that the feed still has.
    Replay {
        name: String,
        /// The first row.
        #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(i64).range(1..))]
        from: i64,
    },
    /// Build a new generation from what is stored, beside the one that is read, compare the two and switch.
    /// Ctrl-C gives it up.
    Rebuild(RebuildArgs),
    /// Rows that a consumer could not handle.
    #[command(subcommand)]
    Parked(ParkedCommand),
}

#[derive(Debug, Args)]
pub struct RebuildArgs {
    pub name: String,
    /// Give up the generation that is being built.
    #[arg(long, conflicts_with = "accept")]
    pub cancel: bool,
    /// Take the generation that was built although it differs from the one that is read.
    #[arg(long)]
    pub accept: bool,
}

#[derive(Debug, Subcommand)]
pub enum ParkedCommand {
    /// Which rows, and why.
    List {
        name: String,
        /// One JSON object per row.
        #[arg(long)]
        json: bool,
    },
    /// Try them again, as the event is now.
    Retry {
        name: String,
        #[command(flatten)]
        rows: Rows,
    },
    /// Forget about them.
    Discard {
        name: String,
        #[command(flatten)]
        rows: Rows,
    },
}

/// Which rows are meant.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Rows {
    /// Their numbers.
    #[arg(value_name = "SEQ")]
    seqs: Vec<i64>,
    #[arg(long)]
    all: bool,
}

impl Rows {
    /// None stands for all.
    pub fn seqs(&self) -> Vec<i64> {
        if self.all { Vec::new() } else { self.seqs.clone() }
    }
}
