//! What children can reach: how the rules are kept here, and what an open one lets them at.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use runner_core::config::{BackendKind, ChildKind, Config, NetworkRule};
use runner_sandbox::SandboxSupport;

use super::DoctorCheck;
use crate::checkout::trial::some_of;
use crate::step::network::{NetworkSupport, RuleMeans, shown};

/// The state of a socket that listens, in the kernel's tables.
const LISTENS: &str = "0A";

/// One check for the rules, and one for what listens on this machine where a rule is open.
pub(super) fn checks(config: &Config, support: &SandboxSupport) -> Vec<DoctorCheck> {
    let Ok(mechanism) = runner_sandbox::choose(config.sandbox.mode, support) else {
        // Said already.
        return Vec::new();
    };
    let network = NetworkSupport::find(&mechanism, support, &config.sandbox.network);
    let mut checks = vec![rules(config, network)];
    let open: Vec<&str> = children(config)
        .filter(|kind| {
            let means = network.means(config.sandbox.network.rule(*kind));
            matches!(
                means,
                RuleMeans::Open | RuleMeans::OpenWithoutAbstract | RuleMeans::Nothing
            )
        })
        .map(ChildKind::as_str)
        .collect();
    if !open.is_empty() {
        checks.push(loopback(&open, &listening(), &loopback_remedy(config)));
    }
    checks
}

/// The kinds of children that there are with this config.
fn children(config: &Config) -> impl Iterator<Item = ChildKind> {
    let has_setup = !config.workspace.setup.is_empty();
    let all = ChildKind::ALL.into_iter();
    all.filter(move |kind| *kind != ChildKind::Setup || has_setup)
}

/// Which rules can be closed: those that are open.
fn loopback_remedy(config: &Config) -> String {
    let network = &config.sandbox.network;
    let open = children(config).filter(|kind| *network.rule(*kind) == NetworkRule::Open);
    let has_hosts = config.executor.backend != BackendKind::Command;
    let (mut words, mut lists_hosts) = (Vec::new(), false);
    for kind in open {
        match kind {
            ChildKind::Session if has_hosts => words.push("session = \"agent\"".to_owned()),
            ChildKind::Session => lists_hosts = true,
            kind => words.push(format!("{} = \"off\"", kind.as_str())),
        }
    }
    let mut remedies = Vec::new();
    if !words.is_empty() {
        let set = words.join(" and ");
        remedies.push(format!(
            "set [sandbox.network] {set} where they do without it"
        ));
    }
    if lists_hosts {
        remedies.push("list the hosts that sessions need in [sandbox.network] session".to_owned());
    }
    if remedies.is_empty() {
        return "install bubblewrap, or let it make network namespaces".to_owned();
    }
    remedies.join("; ")
}

fn rules(config: &Config, network: NetworkSupport) -> DoctorCheck {
    const NAME: &str = "network";
    let all = ChildKind::ALL.map(|kind| (kind, config.sandbox.network.rule(kind)));
    let words: Vec<String> = all
        .iter()
        .map(|(kind, rule)| format!("{}: {}", kind.as_str(), kept(network, rule)))
        .collect();
    let message = words.join("; ");
    if let Err(error) = network.check(config) {
        return DoctorCheck::fail(NAME, error.message, error.hint.unwrap_or_default());
    }
    if network.notes(config).is_empty() {
        return DoctorCheck::ok(NAME, message);
    }
    DoctorCheck::warn(
        NAME,
        message,
        "install bubblewrap, or let it make network namespaces",
    )
}

/// A rule, and what it is worth here.
fn kept(network: NetworkSupport, rule: &NetworkRule) -> String {
    let worth = match network.means(rule) {
        RuleMeans::Open | RuleMeans::OpenWithoutAbstract => return "open".to_owned(),
        RuleMeans::Namespace => "a network of its own",
        RuleMeans::Proxy => "a network of its own, and a proxy",
        RuleMeans::WithoutTcp => "for TCP alone",
        RuleMeans::Nothing => "not kept here: open",
    };
    format!("{} ({worth})", shown(rule).trim_matches('"'))
}

fn loopback(open: &[&str], listening: &BTreeMap<u16, Option<String>>, remedy: &str) -> DoctorCheck {
    const NAME: &str = "loopback";
    let kinds = open.join(" and ");
    if listening.is_empty() {
        return DoctorCheck::ok(
            NAME,
            format!("nothing of this machine listens where {kinds} can reach it"),
        );
    }
    let names: Vec<String> = listening
        .iter()
        .map(|(port, program)| match program {
            Some(program) => format!("{program} ({port})"),
            None => format!("port {port}"),
        })
        .collect();
    DoctorCheck::warn(
        NAME,
        format!(
            "{kinds} can reach what listens on this machine: {}",
            some_of(&names)
        ),
        remedy,
    )
}

/// The ports of this machine's loopback where somebody listens, and the program where it can be told.
fn listening() -> BTreeMap<u16, Option<String>> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let texts = tables.map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<(u16, String)> = texts.iter().flat_map(|text| sockets(text)).collect();
    if sockets.is_empty() {
        return BTreeMap::new();
    }
    let programs = programs();
    let mut ports: BTreeMap<u16, Option<String>> = BTreeMap::new();
    for (port, inode) in sockets {
        let program = ports.entry(port).or_default();
        *program = program.take().or_else(|| programs.get(&inode).cloned());
    }
    ports
}

/// The ports in a table of the kernel's that can be reached over loopback, with the sockets' numbers.
fn sockets(table: &str) -> Vec<(u16, String)> {
    let lines = table.lines().skip(1);
    let found = lines.filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (address, port) = fields.get(1)?.split_once(':')?;
        let address = address_of(address)?;
        let is_there = address.is_loopback() || address.is_unspecified();
        let is_wanted = is_there && *fields.get(3)? == LISTENS;
        let port = u16::from_str_radix(port, 16).ok()?;
        is_wanted.then(|| Some((port, (*fields.get(9)?).to_owned())))?
    });
    found.collect()
}

/// An address as the kernel writes it: words of four bytes in the machine's order.
fn address_of(hex: &str) -> Option<IpAddr> {
    let words: Option<Vec<u32>> = (0..hex.len())
        .step_by(8)
        .map(|at| u32::from_str_radix(hex.get(at..at + 8)?, 16).ok())
        .collect();
    let bytes: Vec<u8> = words?.into_iter().flat_map(u32::to_ne_bytes).collect();
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => {
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?);
            Some(IpAddr::from(address).to_canonical())
        }
        _ => None,
    }
}

/// Which programs hold which sockets, as far as this user may know.
fn programs() -> HashMap<String, String> {
    let mut programs = HashMap::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let folder = process.path();
        let Ok(name) = std::fs::read_to_string(folder.join("comm")) else {
            continue;
        };
        let files = std::fs::read_dir(folder.join("fd"));
        for file in files.into_iter().flatten().flatten() {
            let target = std::fs::read_link(file.path()).unwrap_or_default();
            let target = target.to_string_lossy();
            let number = target.strip_prefix("socket:[");
            if let Some(number) = number.and_then(|it| it.strip_suffix(']')) {
                programs.insert(number.to_owned(), name.trim().to_owned());
            }
        }
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_listen_here() {
        let line = |address: &str, state: &str, inode: u32| {
            format!(
                "   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  0  0 {inode} 1 0\n"
            )
        };
        let word = |bytes: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(bytes));
        let own = word([127, 0, 0, 1]);
        let all = word([0, 0, 0, 0]);
        let lan = word([192, 168, 0, 2]);
        let v6 = format!("{all}{all}{all}{}", word([0, 0, 0, 1]));
        let table = [
            "  sl  local_address rem_address   st\n".to_owned(),
            line(&format!("{own}:1538"), "0A", 11),
            line(&format!("{all}:0050"), "0A", 12),
            line(&format!("{lan}:0051"), "0A", 13),
            line(&format!("{own}:0052"), "01", 14),
            line(&format!("{v6}:2CAA"), "0A", 15),
            "nonsense\n".to_owned(),
        ]
        .concat();
        let expected = [(5432, "11"), (80, "12"), (11434, "15")];
        let expected = expected.map(|(port, inode)| (port, inode.to_owned()));
        assert_eq!(sockets(&table), expected);
    }

    #[test]
    fn only_open_rules_can_be_closed() {
        let hosts = "list the hosts that sessions need in [sandbox.network] session";
        let set = |rules: &str| format!("set [sandbox.network] {rules} where they do without it");
        let command = "[executor]\nbackend = 'command'\ncommand = ['x']\n";
        let setup = "[workspace]\nsetup = ['x']\n";
        let off = "[sandbox.network]\nguard = 'off'\n";
        for (text, expected) in [
            (
                String::new(),
                set("session = \"agent\" and guard = \"off\""),
            ),
            (off.to_owned(), set("session = \"agent\"")),
            (
                format!("{setup}{off}"),
                set("session = \"agent\" and setup = \"off\""),
            ),
            (
                command.to_owned(),
                format!("{}; {hosts}", set("guard = \"off\"")),
            ),
            (format!("{command}{off}"), hosts.to_owned()),
            (
                "[sandbox.network]\nguard = 'off'\nsession = 'off'\n".to_owned(),
                "install bubblewrap, or let it make network namespaces".to_owned(),
            ),
        ] {
            let config = Config::parse(&text).unwrap();
            assert_eq!(loopback_remedy(&config), expected, "{text}");
        }
    }

    #[test]
    fn what_is_open_is_named() {
        let none = loopback(&["session"], &BTreeMap::new(), "");
        assert_eq!(none.verdict, super::super::DoctorVerdict::Ok);
        let some = BTreeMap::from([(5432, Some("postgres".to_owned())), (8080, None)]);
        let check = loopback(&["session", "guard"], &some, "");
        assert_eq!(
            check.message,
            "session and guard can reach what listens on this machine: postgres (5432), port 8080"
        );
    }
}
