//! What kind of address it is that a name leads to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where an address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// To the public network.
    Public,
    /// To this machine.
    Loopback,
    /// To the network of a home, a company or a provider.
    Private,
    /// To the same wire.
    LinkLocal,
    /// To the service that tells virtual machines their keys.
    Metadata,
    /// To no single machine.
    Reserved,
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddressKind::Public => "public",
            AddressKind::Loopback => "loopback",
            AddressKind::Private => "private",
            AddressKind::LinkLocal => "link-local",
            AddressKind::Metadata => "metadata",
            AddressKind::Reserved => "reserved",
        })
    }
}

/// Services that tell virtual machines their keys, in the ranges of all the other kinds.
const METADATA_V4: &[[u8; 4]] = &[
    [169, 254, 169, 254],
    [169, 254, 170, 2],
    [169, 254, 170, 23],
    [100, 100, 100, 200],
    [168, 63, 129, 16],
    [192, 0, 0, 192],
];

const METADATA_V6: &[Ipv6Addr] = &[
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254),
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0023),
    Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254),
];

/// What kind an address is; one that carries an address of version 4 is of that one's kind.
pub fn classify(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(address) => version_4(address),
        IpAddr::V6(address) => match carried(address) {
            Some(inner) => version_4(inner),
            None => version_6(address),
        },
    }
}

/// The same address in one form, so that two of them can be compared.
pub fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

fn version_4(address: Ipv4Addr) -> AddressKind {
    if METADATA_V4.contains(&address.octets()) {
        return AddressKind::Metadata;
    }
    match address.octets() {
        [127, ..] => AddressKind::Loopback,
        [169, 254, ..] => AddressKind::LinkLocal,
        // Documentation, benchmarks, old relays, multicast, what is not given out, broadcast.
        [0 | 224..=255, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => AddressKind::Reserved,
        // The second is what providers share out among their customers.
        [10, ..] | [100, 64..=127, ..] | [172, 16..=31, ..] | [192, 168, ..] => {
            AddressKind::Private
        }
        _ => AddressKind::Public,
    }
}

/// The address of version 4 that one of version 6 stands for.
fn carried(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let last = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        // The unspecified address and loopback are of their own kinds.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        // Mapped, compatible, translated, translated by the network's own NAT64, and by way of a
        // relay (6to4).
        [0, 0, 0, 0, 0, 0xffff | 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x0064, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(last(high, low)),
        _ => None,
    }
}

fn version_6(address: Ipv6Addr) -> AddressKind {
    if METADATA_V6.contains(&address) {
        return AddressKind::Metadata;
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressKind::Loopback,
        // Unique local, site-local (which nobody gives out any more), and a NAT64 of one's own.
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] | [0x0064, 0xff9b, 1, ..] => AddressKind::Private,
        [0xfe80..=0xfebf, ..] => AddressKind::LinkLocal,
        // Tunnels whose far end nobody can tell, and documentation.
        [0x2001, 0..=0x01ff | 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => AddressKind::Reserved,
        // Only so much is given out.
        [0x2000..=0x3fff, ..] => AddressKind::Public,
        _ => AddressKind::Reserved,
    }
}

#[cfg(test)]
mod tests {
    use super::AddressKind::{LinkLocal, Loopback, Metadata, Private, Public, Reserved};
    use super::*;

    #[test]
    fn kinds() {
        for (text, expected) in [
            ("1.1.1.1", Public),
            ("172.15.0.1", Public),
            ("172.32.0.1", Public),
            ("100.63.255.255", Public),
            ("100.128.0.0", Public),
            ("192.0.1.1", Public),
            ("127.0.0.1", Loopback),
            ("127.255.255.254", Loopback),
            ("0.0.0.0", Reserved),
            ("0.1.2.3", Reserved),
            ("10.0.0.1", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.1.1", Private),
            ("100.64.0.1", Private),
            ("169.254.1.1", LinkLocal),
            ("169.254.169.254", Metadata),
            ("169.254.170.2", Metadata),
            ("100.100.100.200", Metadata),
            ("168.63.129.16", Metadata),
            ("224.0.0.1", Reserved),
            ("240.0.0.1", Reserved),
            ("255.255.255.255", Reserved),
            ("192.0.2.1", Reserved),
            ("198.18.0.1", Reserved),
            ("2606:4700::1111", Public),
            ("::", Reserved),
            ("::1", Loopback),
            ("::2", Reserved),
            ("::127.0.0.1", Loopback),
            ("::ffff:127.0.0.1", Loopback),
            ("::ffff:0:127.0.0.1", Loopback),
            ("::ffff:10.0.0.1", Private),
            ("::ffff:169.254.169.254", Metadata),
            ("::ffff:1.1.1.1", Public),
            ("64:ff9b::7f00:1", Loopback),
            ("64:ff9b::a9fe:a9fe", Metadata),
            ("64:ff9b::101:101", Public),
            ("64:ff9b:1::101:101", Private),
            ("2002:7f00:1::", Loopback),
            ("2002:a9fe:a9fe::1", Metadata),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", Reserved),
            ("2001:db8::1", Reserved),
            ("fe80::1", LinkLocal),
            ("fec0::1", Private),
            ("fd00::1", Private),
            ("fc00::1", Private),
            ("fd00:ec2::254", Metadata),
            ("ff02::1", Reserved),
            ("4000::1", Reserved),
        ] {
            assert_eq!(classify(text.parse().unwrap()), expected, "{text}");
        }
    }
}
