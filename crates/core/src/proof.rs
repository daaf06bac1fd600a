//! What is signed about a pass, and how a signature is written in a commit message.

use crate::digest::{hex, sha256_hex};
use crate::message;

/// The trailer of the commit of a pass: `ed25519 <key id> <signature>`.
pub const PROOF: &str = "Runner-Proof";

/// The trailer of the commit that begins a run: `ed25519 <key id> <public key>`.
pub const KEY: &str = "Runner-Key";

/// The kind of signature that there is.
const KIND: &str = "ed25519";

/// A key or a signature as a trailer names it: the key's id, and the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofTrailer<const N: usize> {
    /// Which key.
    pub key_id: String,
    /// The public key, or the signature.
    pub bytes: [u8; N],
}

impl<const N: usize> ProofTrailer<N> {
    /// The value of the trailer.
    pub fn value(&self) -> String {
        format!("{KIND} {} {}", self.key_id, hex(&self.bytes))
    }

    /// Reads it back.
    pub fn parse(value: &str) -> Option<Self> {
        let mut words = value.split(' ');
        let (kind, key_id, text) = (words.next()?, words.next()?, words.next()?);
        if kind != KIND || words.next().is_some() {
            return None;
        }
        Some(ProofTrailer {
            key_id: key_id.to_owned(),
            bytes: unhex(text)?,
        })
    }
}

/// The name of a key: the beginning of the hash of its public half.
pub fn key_id(public: &[u8; 32]) -> String {
    sha256_hex(public)[..16].to_owned()
}

/// The bytes that a signature is about: the parent, the commit's git tree, and everything that the
/// message says but the signature.
pub fn statement(parent: &str, git_tree: &str, message: &str) -> String {
    let unsigned = message::without_trailer(message, PROOF);
    format!("runner proof 1\nparent {parent}\ntree {git_tree}\n\n{unsigned}")
}

/// Bytes that were written as hexadecimal digits.
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_reads_back() {
        let signature = ProofTrailer {
            key_id: key_id(&[7; 32]),
            bytes: [0xa5; 64],
        };
        let value = signature.value();
        assert_eq!(ProofTrailer::parse(&value), Some(signature));
        for wrong in [
            "",
            "ed25519",
            "ed25519 ab",
            "rsa ab a5",
            "ed25519 ab a5",
            "ed25519 ab zz",
            &format!("{value} more"),
            &value[..value.len() - 1],
        ] {
            assert_eq!(ProofTrailer::<64>::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn everything_but_the_signature_is_signed() {
        let message = "chore(loop): run a\n\nRunner-Guard: [\"x\"] exit=0\nRunner-Mode: execute\n";
        let signed = format!("{message}{PROOF}: ed25519 ab cd\n");
        let text = statement("p", "t", message);
        assert_eq!(text, statement("p", "t", &signed));
        for (parent, tree, message) in [
            ("q", "t", message),
            ("p", "u", message),
            ("p", "t", &message.replace("exit=0", "exit=1")),
            ("p", "t", &message.replace("run a", "run b")),
        ] {
            assert_ne!(text, statement(parent, tree, message));
        }
    }
}
