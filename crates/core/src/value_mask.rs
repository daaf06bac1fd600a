//! Hiding given values in output that comes in pieces.

/// What stands for a value.
const MASK: &[u8] = b"***";

/// Shorter ones are words such as `true` or `production`, which would make logs unreadable.
const MIN_LENGTH: usize = 8;

/// Values that nothing may show.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ValueMask {
    /// The longest first: one may begin like another.
    values: Vec<Vec<u8>>,
}

impl ValueMask {
    /// Of these values and their lines, those that are long enough to be told from words.
    pub fn new(values: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let mut values: Vec<Vec<u8>> = values.into_iter().collect();
        let lines = values
            .iter()
            .flat_map(|value| value.split(|byte| *byte == b'\n'));
        let lines: Vec<Vec<u8>> = lines.map(|line| line.trim_ascii().to_vec()).collect();
        values.extend(lines);
        values.retain(|value| value.len() >= MIN_LENGTH);
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        ValueMask { values }
    }

    /// Whether there is nothing to hide.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// All of a text without them.
    pub fn hide_in(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = MaskedStream::default();
        let mut shown = stream.push(self, bytes);
        shown.extend(stream.finish());
        shown
    }

    /// The same for a text.
    pub fn hide_in_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.hide_in(text.as_bytes())).into_owned()
    }

    /// The value that begins here, if any.
    fn value_at(&self, bytes: &[u8]) -> Option<&[u8]> {
        let mut values = self.values.iter();
        values
            .find(|value| bytes.starts_with(value))
            .map(Vec::as_slice)
    }

    /// Whether what is left may become a value.
    fn may_begin(&self, bytes: &[u8]) -> bool {
        let mut values = self.values.iter();
        values.any(|value| value.len() > bytes.len() && value.starts_with(bytes))
    }
}

impl std::fmt::Debug for ValueMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ValueMask")
            .field(&self.values.len())
            .finish()
    }
}

/// One stream in which they are hidden.
#[derive(Clone, Debug, Default)]
pub struct MaskedStream {
    /// The end of what came, if it may be the beginning of a value.
    held: Vec<u8>,
}

impl MaskedStream {
    /// What can be shown after these bytes came.
    pub fn push(&mut self, mask: &ValueMask, bytes: &[u8]) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let mut shown = Vec::with_capacity(all.len());
        let mut at = 0;
        while at < all.len() {
            let rest = &all[at..];
            if let Some(value) = mask.value_at(rest) {
                shown.extend_from_slice(MASK);
                at += value.len();
            } else if mask.may_begin(rest) {
                self.held = rest.to_vec();
                break;
            } else {
                shown.push(rest[0]);
                at += 1;
            }
        }
        shown
    }

    /// What was held back, when nothing comes any more.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask(values: &[&str]) -> ValueMask {
        ValueMask::new(values.iter().map(|value| value.as_bytes().to_vec()))
    }

    fn shown(mask: &ValueMask, parts: &[&[u8]]) -> String {
        let mut stream = MaskedStream::default();
        let mut all = Vec::new();
        for part in parts {
            all.extend(stream.push(mask, part));
        }
        all.extend(stream.finish());
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn values_wherever_they_stand() {
        let mask = mask(&["hunter22-secret", "hunter22", "short", "aaaaaaaab"]);
        for (parts, expected) in [
            (&["key=hunter22!"][..], "key=***!"),
            (&["key=hunter22-secret"], "key=***"),
            (&["hun", "ter", "22\n"], "***\n"),
            (&["hunter22-sec", "ond"], "***-second"),
            (&["hunter2", "1"], "hunter21"),
            (&["a short word"], "a short word"),
            (&["aaaaaaaaaaab"], "aaa***"),
            (&["hunter22hunter22"], "******"),
            (&["tail hunter2"], "tail hunter2"),
        ] {
            let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
            assert_eq!(shown(&mask, &parts), expected, "{parts:?}");
        }
    }

    #[test]
    fn lines_of_a_value_count_by_themselves() {
        let mask = mask(&["-----BEGIN KEY-----\nMIIEpAIBAAK\nshort\n"]);
        let text = mask.hide_in_text("it is MIIEpAIBAAK, and short");
        assert_eq!(text, "it is ***, and short");
    }

    proptest! {
        #[test]
        fn however_the_output_is_cut(
            pieces in prop::collection::vec(prop_oneof!["[a-z ]{0,6}", Just("password1".to_owned())], 0..8),
            cut in 1usize..7,
        ) {
            let text = pieces.concat();
            let mask = mask(&["password1"]);
            let parts: Vec<&[u8]> = text.as_bytes().chunks(cut).collect();
            prop_assert_eq!(shown(&mask, &parts), text.replace("password1", "***"));
        }
    }
}
