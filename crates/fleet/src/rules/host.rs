//! What is told of the machine: lines from neofetch or uname, a fingerprint of what stays
//! the same, and when to look again.

use runner_core::digest::sha256_hex;
use runner_core::text::cut_chars;
use runner_lifecycle::Timestamp;
use serde::{Deserialize, Serialize};

use super::context::one_line;

/// How long a snapshot is good.
pub const TTL_SECS: u64 = 24 * 3600;

/// The longest line, in characters.
const LINE_CHARS: usize = 100;

/// What neofetch says that stays the same from one day to the next. Uptime, resolution,
/// user and host name are not among it.
const STABLE: [&str; 6] = ["OS", "Kernel", "Shell", "CPU", "GPU", "Memory"];

/// Where a snapshot comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotSource {
    /// `neofetch --stdout`
    Neofetch,
    /// `uname -srmo`
    Uname,
}

/// What is known of the machine: `.runner/fleet/context/agent-profile.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSnapshot {
    /// Where it comes from.
    pub source: SnapshotSource,
    /// The lines for a session.
    pub lines: Vec<String>,
    /// The SHA-256 of what stays the same.
    pub fingerprint: String,
    /// When it was taken.
    pub taken_at: Timestamp,
}

impl HostSnapshot {
    /// From the output of a command; none if it says nothing that is known.
    pub fn parse(source: SnapshotSource, output: &str, now: Timestamp) -> Option<HostSnapshot> {
        let lines = match source {
            SnapshotSource::Neofetch => neofetch_lines(output),
            SnapshotSource::Uname => uname_lines(output),
        };
        (!lines.is_empty()).then(|| HostSnapshot {
            source,
            fingerprint: sha256_hex(lines.join("\n").as_bytes()),
            lines,
            taken_at: now,
        })
    }
}

/// Whether to look again: there is no snapshot, it is a day old or from the future, or
/// the machine is another one.
pub fn refresh_due(kept: Option<&HostSnapshot>, fingerprint: Option<&str>, now: Timestamp) -> bool {
    let Some(kept) = kept else {
        return true;
    };
    kept.taken_at > now
        || now.millis_since(kept.taken_at) >= TTL_SECS * 1000
        || fingerprint.is_some_and(|seen| seen != kept.fingerprint)
}

/// `Key: value` lines of the known keys, in our order; a picture beside them is ignored.
fn neofetch_lines(output: &str) -> Vec<String> {
    let output = super::signature::without_escapes(output);
    STABLE
        .iter()
        .filter_map(|key| {
            let value = output.lines().find_map(|line| value_of(line, key))?;
            // `1234MiB / 15000MiB`: how much is used changes all the time.
            let value = match value.rsplit_once(" / ") {
                Some((_, total)) if *key == "Memory" => total,
                _ => value,
            };
            shown(key, value)
        })
        .collect()
}

fn value_of<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    let (before, value) = line.split_once(": ")?;
    (before.split_whitespace().next_back() == Some(key)).then(|| value.trim())
}

/// `Linux 6.1.0 x86_64 GNU/Linux`: kernel, release, machine, system.
fn uname_lines(output: &str) -> Vec<String> {
    let words: Vec<&str> = output.split_whitespace().collect();
    let [kernel, release, machine, system @ ..] = words.as_slice() else {
        return Vec::new();
    };
    [
        shown("OS", &system.join(" ")),
        shown("Kernel", &format!("{kernel} {release}")),
        shown("Machine", machine),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn shown(key: &str, value: &str) -> Option<String> {
    let value = one_line(value);
    (!value.is_empty()).then(|| cut_chars(&format!("{key}: {value}"), LINE_CHARS).into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NEOFETCH: &str = "\
user@machine
------------
OS: Debian GNU/Linux 12 (bookworm) x86_64
Host: KVM 1.0
Kernel: 6.1.0-18-amd64
Uptime: 3 days, 4 hours, 5 mins
Packages: 812 (dpkg)
Shell: bash 5.2.15
CPU: Some CPU (8) @ 3.0GHz
Memory: 1234MiB / 15991MiB
";

    fn snapshot(source: SnapshotSource, output: &str) -> Option<HostSnapshot> {
        HostSnapshot::parse(source, output, Timestamp(5))
    }

    #[test]
    fn lines_of_both_sources() {
        let cases: [(SnapshotSource, &str, &[&str]); 6] = [
            (
                SnapshotSource::Neofetch,
                NEOFETCH,
                &[
                    "OS: Debian GNU/Linux 12 (bookworm) x86_64",
                    "Kernel: 6.1.0-18-amd64",
                    "Shell: bash 5.2.15",
                    "CPU: Some CPU (8) @ 3.0GHz",
                    "Memory: 15991MiB",
                ],
            ),
            (
                SnapshotSource::Neofetch,
                "\u{1b}[1m  /\\_/\\  \u{1b}[0m OS: Arch\u{1b}[0m",
                &["OS: Arch"],
            ),
            (
                SnapshotSource::Uname,
                "Linux 6.1.0-18-amd64 x86_64 GNU/Linux\n",
                &[
                    "OS: GNU/Linux",
                    "Kernel: Linux 6.1.0-18-amd64",
                    "Machine: x86_64",
                ],
            ),
            (
                SnapshotSource::Uname,
                "Linux 6.1 aarch64",
                &["Kernel: Linux 6.1", "Machine: aarch64"],
            ),
            (SnapshotSource::Uname, "Linux", &[]),
            (SnapshotSource::Neofetch, "command not found", &[]),
        ];
        for (source, output, expected) in cases {
            let lines = snapshot(source, output).map(|one| one.lines);
            assert_eq!(lines.unwrap_or_default(), expected, "{output}");
        }
    }

    #[test]
    fn the_fingerprint_is_of_what_stays() {
        let first = snapshot(SnapshotSource::Neofetch, NEOFETCH).unwrap();
        let later = NEOFETCH
            .replace("3 days", "9 days")
            .replace("1234MiB", "9999MiB")
            .replace("user@machine", "other@place");
        let later = snapshot(SnapshotSource::Neofetch, &later).unwrap();
        assert_eq!(first.fingerprint, later.fingerprint);
        let other = NEOFETCH.replace("6.1.0-18", "6.1.0-19");
        let other = snapshot(SnapshotSource::Neofetch, &other).unwrap();
        assert_ne!(first.fingerprint, other.fingerprint);
        let text = serde_json::to_string(&first).unwrap();
        assert_eq!(serde_json::from_str::<HostSnapshot>(&text).unwrap(), first);
    }

    #[test]
    fn when_to_look_again() {
        let day = 24 * 3600 * 1000;
        let kept = snapshot(SnapshotSource::Neofetch, NEOFETCH).unwrap();
        let same = kept.fingerprint.clone();
        for (kept, seen, now, due) in [
            (None, None, 5, true),
            (Some(&kept), None, 5, false),
            (Some(&kept), Some(same.as_str()), day + 4, false),
            (Some(&kept), Some("other"), 6, true),
            (Some(&kept), None, day + 5, true),
            (Some(&kept), None, 4, true),
        ] {
            assert_eq!(
                refresh_due(kept, seen, Timestamp(now)),
                due,
                "{seen:?} {now}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_output_is_taken(output in "(?s).{0,300}") {
            for source in [SnapshotSource::Neofetch, SnapshotSource::Uname] {
                for line in snapshot(source, &output).map(|one| one.lines).unwrap_or_default() {
                    prop_assert!(line.chars().count() <= LINE_CHARS);
                    prop_assert!(!line.contains('\n'));
                }
            }
        }
    }
}
