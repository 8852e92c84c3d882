//! Bodies: the text that is stored is the text that was verified.

use kukuri_core::Record;

use super::finding::{Findings, RESTORE, Subject};

const CHECK: &str = "bodies";

/// Which events have their ids and signatures verified, and are looked for: one in `stride`, from `offset` on.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    stride: u64,
    offset: u64,
}

impl Sample {
    /// About `wanted` of `total`. A different `offset` picks others.
    pub fn new(wanted: u64, total: u64, offset: u64) -> Self {
        let stride = total.checked_div(wanted).map_or(u64::MAX, |stride| stride.max(1));
        Self { stride, offset: offset % stride }
    }

    pub fn picks(&self, nth: u64) -> bool {
        nth % self.stride == self.offset && self.stride != u64::MAX
    }
}

/// Checks that a body is canonical.
pub fn check_text(record: &Record, findings: &mut Findings) {
    if record.event().to_json() != record.body.json() {
        let problem = "its text is not the canonical one";
        findings.add(CHECK, Subject::Event(record.event().id()), problem, RESTORE);
    }
}

/// Checks the id and the signature of a body.
pub fn check_signature(record: &Record, findings: &mut Findings) {
    let event = record.event();
    let problem = match event.clone().identify().map(kukuri_event::Identified::verify) {
        Ok(Ok(_)) => return,
        Ok(Err(_)) => "its signature does not hold",
        Err(_) => "its id is not the hash of its values",
    };
    findings.add(CHECK, Subject::Event(event.id()), problem, RESTORE);
}

#[cfg(test)]
mod tests {
    use super::Sample;

    fn picked(wanted: u64, total: u64, offset: u64) -> usize {
        let sample = Sample::new(wanted, total, offset);
        (0..total).filter(|nth| sample.picks(*nth)).count()
    }

    #[test]
    fn a_sample_is_as_large_as_wanted() {
        assert_eq!(picked(1000, 10, 7), 10);
        assert_eq!(picked(1000, 1000, 12_345), 1000);
        assert_eq!(picked(1000, 10_000, 12_345), 1000);
        assert_eq!(picked(u64::MAX, 5000, 99), 5000);
        assert_eq!(picked(0, 5000, 0), 0);
    }
}
