//! When a stranger is asked for a sign of life. Pure.
//!
//! Who is stuck says so with the next packet that it has a reason to send, which may be seconds away, and all of its
//! swarms wait until then.

/// After so many looks at the latest a stranger is nudged, for as long as it is connected.
pub const NUDGE_LOOKS: u32 = 20;
/// Earlier only if something has come, and no more often than this after it has heard of more streams: who reads
/// nothing is given a byte by each nudge. That is one in a second from then on.
pub const NUDGES_MAX: u32 = 1024;

#[derive(Clone, Copy, Debug, Default)]
pub struct Nudges {
    /// How much had come when it was last nudged, and looks since then.
    heard: u64,
    quiet: u32,
    /// Nudges because something had come, since it last heard of more streams.
    prompt: u32,
}

impl Nudges {
    /// It has heard of more streams.
    pub fn renew(&mut self) {
        self.prompt = 0;
    }

    /// Whether it is nudged at this look, when so much has come.
    pub fn is_due(&mut self, heard: u64) -> bool {
        self.quiet += 1;
        let prompt = heard > self.heard && self.prompt < NUDGES_MAX;
        let due = prompt || self.quiet >= NUDGE_LOOKS;
        if due {
            (self.heard, self.quiet) = (heard, 0);
            self.prompt += u32::from(prompt);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many looks were nudges, at each of which more has come, or never.
    fn nudges(nudges: &mut Nudges, looks: u32, more: u64) -> u32 {
        let mut heard = nudges.heard;
        (0..looks)
            .map(|_| {
                u32::from(nudges.is_due({
                    heard += more;
                    heard
                }))
            })
            .sum()
    }

    #[test]
    fn who_speaks_is_nudged_at_once_and_who_does_not_in_time() {
        let mut it = Nudges::default();
        assert_eq!(nudges(&mut it, 5, 1), 5);
        assert_eq!(nudges(&mut it, NUDGE_LOOKS - 1, 0), 0);
        assert_eq!(nudges(&mut it, 1, 0), 1);
    }

    /// Nudges of every sort were counted, and a connection on which all was well had used them up in a quarter of an
    /// hour: whoever was stuck on it later said so when it liked.
    #[test]
    fn nudges_never_end() {
        let mut it = Nudges::default();
        assert_eq!(nudges(&mut it, 2 * NUDGES_MAX * NUDGE_LOOKS, 0), 2 * NUDGES_MAX);
        assert_eq!(nudges(&mut it, NUDGES_MAX, 1), NUDGES_MAX, "those were not counted");
        assert_eq!(nudges(&mut it, 10 * NUDGE_LOOKS, 1), 10, "one more at once is too many");
        it.renew();
        assert_eq!(nudges(&mut it, NUDGES_MAX, 1), NUDGES_MAX);
    }
}
