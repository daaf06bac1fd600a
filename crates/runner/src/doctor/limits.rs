//! What keeps children within `[sandbox.limits]` on this machine.

use runner_core::config::SandboxLimits;
use runner_core::config::show_size;

use super::DoctorCheck;
use crate::limits::{GroupMeans, machine_memory, size};

/// By which means, and which limits.
pub(super) fn check(limits: &SandboxLimits, means: &GroupMeans) -> DoctorCheck {
    let how = match means {
        GroupMeans::None(_) => format!("by looking every second: {}", means.words()),
        GroupMeans::V1 { .. } | GroupMeans::V2(_) => format!("by {}", means.words()),
    };
    DoctorCheck::ok(
        "limits",
        format!(
            "{how}; memory {} for all together, {} processes, growth {}, {} stay free",
            size(limits.memory.bytes(machine_memory())),
            limits.processes,
            show_size(limits.workspace_growth),
            show_size(limits.free_space),
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_means_are_named() {
        let limits = SandboxLimits::default();
        for (means, words) in [
            (GroupMeans::V2("/x".into()), "by cgroup v2; memory "),
            (
                GroupMeans::None("not delegated".to_owned()),
                "by looking every second: no cgroup (not delegated); ",
            ),
        ] {
            let check = check(&limits, &means);
            assert!(check.message.starts_with(words), "{}", check.message);
            assert!(
                check
                    .message
                    .ends_with("4096 processes, growth 20GiB, 1GiB stay free")
            );
        }
    }
}
