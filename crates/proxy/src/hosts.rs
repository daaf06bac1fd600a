//! Which hosts are listed, and what a request may therefore reach.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use runner_core::config::{check_host, split_port};

use crate::address::{AddressKind, classify, plain};

/// The ports that an entry without one stands for.
const WEB_PORTS: [u16; 2] = [80, 443];

/// The longest name that there can be.
const MAX_NAME: usize = 253;

/// The host of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestHost {
    /// A name, in lowercase.
    Name(String),
    /// An address, in one form.
    Address(IpAddr),
}

impl RequestHost {
    /// Reads a host as it stands in a URI; what is wrong with it as a lowercase fragment. The forms
    /// in which C libraries take addresses too (`127.1`, `0x7f.0.0.1`, `2130706433`) are refused: they
    /// could be read in two ways.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or("a bracket is missing")?;
            let address: Ipv6Addr = inner.parse().map_err(|_| "not an address of version 6")?;
            return Ok(RequestHost::Address(plain(address.into())));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if let Ok(address) = name.parse::<Ipv4Addr>() {
            return Ok(RequestHost::Address(address.into()));
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(fits) {
            return Err("not a name that a host can have");
        }
        if name.split('.').any(str::is_empty) {
            return Err("a name with nothing between two dots");
        }
        let last = name.rsplit('.').next().unwrap_or_default();
        let hex = last.strip_prefix("0x").or(last.strip_prefix("0X"));
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
            || hex.is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_number {
            return Err("an address that is not written as four numbers");
        }
        Ok(RequestHost::Name(name.to_ascii_lowercase()))
    }

    fn is_own_machine(&self) -> bool {
        match self {
            RequestHost::Name(name) => name == "localhost" || name.ends_with(".localhost"),
            RequestHost::Address(_) => false,
        }
    }
}

impl fmt::Display for RequestHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestHost::Name(name) => f.write_str(name),
            RequestHost::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            RequestHost::Address(address) => address.fmt(f),
        }
    }
}

/// How a host is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMatch {
    /// By itself.
    Exact,
    /// As one below a name (`*.example.org`).
    Below,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostRule {
    host: RequestHost,
    below: bool,
    port: Option<u16>,
}

impl HostRule {
    fn parse(text: &str) -> Result<Self, &'static str> {
        check_host(text)?;
        let (name, port) = split_port(text);
        let below = name.strip_prefix("*.");
        let host = RequestHost::parse(below.unwrap_or(name))?;
        let below = below.is_some();
        if below && matches!(host, RequestHost::Address(_)) {
            return Err("nothing is below an address");
        }
        let port = port.map(|port| port.parse().map_err(|_| "not a port"));
        Ok(HostRule {
            host,
            below,
            port: port.transpose()?,
        })
    }

    fn has_port(&self, port: u16) -> bool {
        match self.port {
            Some(own) => own == port,
            None => WEB_PORTS.contains(&port),
        }
    }

    fn find(&self, host: &RequestHost) -> Option<HostMatch> {
        if !self.below {
            return (self.host == *host).then_some(HostMatch::Exact);
        }
        match (&self.host, host) {
            (RequestHost::Name(around), RequestHost::Name(name)) => {
                let rest = name.strip_suffix(around.as_str())?;
                (rest.len() > 1 && rest.ends_with('.')).then_some(HostMatch::Below)
            }
            _ => None,
        }
    }
}

/// The hosts that may be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostList {
    rules: Vec<HostRule>,
}

impl HostList {
    /// Reads the entries of a list; the first that is none, and why.
    pub fn parse<S: AsRef<str>>(entries: &[S]) -> Result<Self, (String, &'static str)> {
        let parse = |entry: &S| {
            let entry = entry.as_ref();
            HostRule::parse(entry).map_err(|why| (entry.to_owned(), why))
        };
        Ok(HostList {
            rules: entries.iter().map(parse).collect::<Result<_, _>>()?,
        })
    }

    /// A host as people are told of it. The ports of the web go without saying, unless the host is
    /// listed with others alone.
    pub(crate) fn shown(&self, host: &RequestHost, port: u16) -> String {
        let is_listed = self.rules.iter().any(|rule| rule.find(host).is_some());
        if WEB_PORTS.contains(&port) && !is_listed {
            host.to_string()
        } else {
            format!("{host}:{port}")
        }
    }

    /// Whether and how a host is listed.
    pub fn find(&self, host: &RequestHost, port: u16) -> Option<HostMatch> {
        let rules = self.rules.iter().filter(|rule| rule.has_port(port));
        let found: Vec<HostMatch> = rules.filter_map(|rule| rule.find(host)).collect();
        let exact = found.iter().find(|it| **it == HostMatch::Exact);
        exact.or(found.first()).copied()
    }

    /// Whether a listed host may be reached at this address; else what kind of address it is.
    ///
    /// Who writes a name down trusts it to lead into the own network, or with `localhost` to this
    /// machine, but not to where machines get their keys. One that is only below a name is trusted
    /// with the public network. An address that is itself listed is meant.
    pub fn check_address(
        &self,
        host: &RequestHost,
        port: u16,
        found: HostMatch,
        address: IpAddr,
    ) -> Result<(), AddressKind> {
        let kind = classify(address);
        let itself = RequestHost::Address(plain(address));
        let is_listed = || self.find(&itself, port) == Some(HostMatch::Exact);
        let is_exact = found == HostMatch::Exact;
        let fits = match kind {
            AddressKind::Public => true,
            AddressKind::Private => is_exact || is_listed(),
            AddressKind::Loopback => (is_exact && host.is_own_machine()) || is_listed(),
            AddressKind::LinkLocal | AddressKind::Metadata => is_listed(),
            AddressKind::Reserved => false,
        };
        fits.then_some(()).ok_or(kind)
    }

    /// What is listed of this machine's loopback with a port. Programs reach it in their namespace
    /// at the same place without asking a proxy, as they would outside.
    pub fn own_machine(&self) -> Vec<SocketAddr> {
        let v4 = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let mut places: Vec<SocketAddr> = Vec::new();
        for rule in self.rules.iter().filter(|rule| !rule.below) {
            let Some(port) = rule.port else { continue };
            let addresses = match &rule.host {
                RequestHost::Address(address) if address.is_loopback() => vec![*address],
                RequestHost::Name(name) if name == "localhost" => vec![v4, v6],
                _ => continue,
            };
            for address in addresses {
                let place = SocketAddr::new(address, port);
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &str) -> HostList {
        let entries: Vec<&str> = entries.split_whitespace().collect();
        HostList::parse(&entries).unwrap()
    }

    #[test]
    fn hosts_of_requests() {
        for (text, expected) in [
            ("A.Example", Ok("a.example")),
            ("a.example.", Ok("a.example")),
            ("a_b-c.d", Ok("a_b-c.d")),
            ("127.0.0.1", Ok("127.0.0.1")),
            ("[::1]", Ok("[::1]")),
            ("[::ffff:127.0.0.1]", Ok("127.0.0.1")),
            ("[::FFFF:7f00:1]", Ok("127.0.0.1")),
            ("", Err("name")),
            (".", Err("name")),
            ("a..b", Err("two dots")),
            ("a b", Err("name")),
            ("a@b", Err("name")),
            ("a%2eb", Err("name")),
            ("b\u{fc}cher.example", Err("name")),
            ("::1", Err("name")),
            ("[::1", Err("bracket")),
            ("[fe80::1%25eth0]", Err("version 6")),
            ("[127.0.0.1]", Err("version 6")),
            ("127.1", Err("four numbers")),
            ("2130706433", Err("four numbers")),
            ("0177.0.0.1", Err("four numbers")),
            ("0x7f.0.0.1", Err("four numbers")),
            ("0x7f000001", Err("four numbers")),
            ("1.2.3.0x4", Err("four numbers")),
            ("127.0.0.01", Err("four numbers")),
            ("256.1.1.1", Err("four numbers")),
            ("0x", Err("four numbers")),
        ] {
            match (RequestHost::parse(text), expected) {
                (Ok(host), Ok(shown)) => assert_eq!(host.to_string(), shown, "{text}"),
                (Err(why), Err(words)) => assert!(why.contains(words), "{text}: {why}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
        assert!(RequestHost::parse(&"a".repeat(254)).is_err());
    }

    #[test]
    fn entries_that_are_none() {
        for (entry, words) in [
            ("*.10.0.0.1", "below an address"),
            ("[zz]:1", "version 6"),
            ("127.1", "four numbers"),
            ("http://a", "scheme"),
        ] {
            let (named, why) = HostList::parse(&["a.b", entry]).unwrap_err();
            assert_eq!(named, entry);
            assert!(why.contains(words), "{entry}: {why}");
        }
    }

    #[test]
    fn ports_are_told_where_they_are_why() {
        let rules = list("api.example:8443 *.wild.test:9 other.example");
        for (host, port, expected) in [
            ("api.example", 443, "api.example:443"),
            ("x.wild.test", 80, "x.wild.test:80"),
            ("other.example", 22, "other.example:22"),
            ("else.example", 443, "else.example"),
            ("else.example", 22, "else.example:22"),
        ] {
            let host = RequestHost::parse(host).unwrap();
            assert_eq!(rules.shown(&host, port), expected);
        }
    }

    #[test]
    fn listed_or_not() {
        let rules = "api.example *.example.org:443 wild.test:8443 *.wild.test 127.0.0.1:4141 [fd00::1] localhost:5432";
        let rules = list(rules);
        for (host, port, expected) in [
            ("api.example", 443, Some(HostMatch::Exact)),
            ("API.EXAMPLE.", 80, Some(HostMatch::Exact)),
            ("api.example", 22, None),
            ("api.example.evil", 443, None),
            ("xapi.example", 443, None),
            ("x.api.example", 443, None),
            ("example.org", 443, None),
            ("a.example.org", 443, Some(HostMatch::Below)),
            ("a.b.example.org", 443, Some(HostMatch::Below)),
            ("a.example.org", 80, None),
            ("aexample.org", 443, None),
            ("wild.test", 8443, Some(HostMatch::Exact)),
            ("x.wild.test", 80, Some(HostMatch::Below)),
            ("127.0.0.1", 4141, Some(HostMatch::Exact)),
            ("[::ffff:127.0.0.1]", 4141, Some(HostMatch::Exact)),
            ("127.0.0.1", 4142, None),
            ("127.0.0.2", 4141, None),
            ("[fd00::1]", 443, Some(HostMatch::Exact)),
            ("[fd00:0:0::1]", 443, Some(HostMatch::Exact)),
            ("localhost", 5432, Some(HostMatch::Exact)),
            ("localhost", 443, None),
        ] {
            let host = RequestHost::parse(host).unwrap();
            assert_eq!(rules.find(&host, port), expected, "{host}:{port}");
        }
        assert_eq!(
            HostList::default().find(&RequestHost::parse("a").unwrap(), 443),
            None
        );
    }

    #[test]
    fn addresses_of_listed_hosts() {
        let rules = list(
            "api.example *.example.org lan.test localhost:80 127.0.0.2:80 169.254.169.254:80 0.0.0.0",
        );
        for (host, address, expected) in [
            ("api.example", "1.1.1.1", Ok(())),
            ("api.example", "10.0.0.1", Ok(())),
            ("api.example", "127.0.0.1", Err(AddressKind::Loopback)),
            ("api.example", "169.254.1.1", Err(AddressKind::LinkLocal)),
            ("api.example", "100.100.100.200", Err(AddressKind::Metadata)),
            ("api.example", "224.0.0.1", Err(AddressKind::Reserved)),
            ("a.example.org", "1.1.1.1", Ok(())),
            ("a.example.org", "10.0.0.1", Err(AddressKind::Private)),
            (
                "a.example.org",
                "::ffff:10.0.0.1",
                Err(AddressKind::Private),
            ),
            ("a.example.org", "64:ff9b::a00:1", Err(AddressKind::Private)),
            ("localhost", "127.0.0.1", Ok(())),
            ("localhost", "::1", Ok(())),
            ("localhost", "169.254.9.9", Err(AddressKind::LinkLocal)),
            // The address itself is listed, so any listed name may lead there.
            ("api.example", "127.0.0.2", Ok(())),
            ("api.example", "::ffff:127.0.0.2", Ok(())),
            ("api.example", "169.254.169.254", Ok(())),
            ("0.0.0.0", "0.0.0.0", Err(AddressKind::Reserved)),
        ] {
            let host = RequestHost::parse(host).unwrap();
            let found = rules.find(&host, 80).unwrap();
            let address: IpAddr = address.parse().unwrap();
            let checked = rules.check_address(&host, 80, found, address);
            assert_eq!(checked, expected, "{host} {address}");
        }
    }

    #[test]
    fn what_is_listed_of_this_machine() {
        let shown = |entries: &str| {
            let places = list(entries).own_machine();
            let places: Vec<_> = places.iter().map(SocketAddr::to_string).collect();
            places.join(" ")
        };
        assert_eq!(shown("a.b:1 localhost 127.0.0.1 *.localhost:9"), "");
        assert_eq!(
            shown("127.0.0.1:1 localhost:1 [::1]:2 127.0.0.3:4"),
            "127.0.0.1:1 [::1]:1 [::1]:2 127.0.0.3:4"
        );
    }
}
