//! `runner fleet api`: one request to the API that is served here, over its socket, with the token
//! from its file: neither is on any command line.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;

use runner::{Error, ErrorCode, Result};
use runner_server::fleet::fleet_token;

use super::token::ApiAddress;
use super::{api, context};
use crate::commands::Exit;
use crate::fleet_args::AskArgs;
use crate::out::OutputGate;

/// The longest line of a head.
const MAX_LINE: u64 = 64 << 10;

/// `runner fleet api`.
pub(super) fn run(dir: &Path, options: &AskArgs, out: &mut OutputGate) -> Result<Exit> {
    let body = options.data.as_deref().map(body).transpose()?;
    let method = match (&options.method, &body) {
        (Some(method), _) => method.to_ascii_uppercase(),
        (None, Some(_)) => "POST".to_owned(),
        (None, None) => "GET".to_owned(),
    };
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain(&method) || !is_plain(&options.path) || !options.path.starts_with('/') {
        let words = format!("{method} {} is no request", options.path);
        return Err(
            Error::new(ErrorCode::Config, words).hint("for example: runner fleet api /tasks")
        );
    }
    let (_, repo) = context::open_repo(dir)?;
    let keys = repo.key_folder()?;
    let served = ApiAddress::served(&keys)?;
    let token = fleet_token(&keys)?;
    let mut stream = api::connect(&keys, OsStr::new(&served.socket))?;
    let body = body.unwrap_or_default();
    // As the first version: the answer comes in one piece, and its end is the connection's.
    let head = format!(
        "{method} {} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        options.path,
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)?;
    let mut answer = BufReader::new(stream);
    let status = head_of(&mut answer)?;
    out.pass_on(&mut answer)?;
    Ok(if (200..300).contains(&status) {
        Exit::Success
    } else {
        Exit::Error
    })
}

/// The body that was named.
fn body(given: &str) -> Result<Vec<u8>> {
    let read = match given.strip_prefix('@') {
        Some("-") => {
            let mut body = Vec::new();
            std::io::stdin().read_to_end(&mut body).map(|_| body)
        }
        Some(path) => std::fs::read(path),
        None => return Ok(given.as_bytes().to_vec()),
    };
    read.map_err(|error| Error::new(ErrorCode::NotFound, format!("{given}: {error}")))
}

/// The status; what is left is the body.
fn head_of(answer: &mut BufReader<impl std::io::Read>) -> Result<u16> {
    let broken = || Error::new(ErrorCode::Io, "the API broke off");
    let mut first = None;
    loop {
        let mut line = String::new();
        answer.by_ref().take(MAX_LINE).read_line(&mut line)?;
        if line.is_empty() {
            return Err(broken());
        }
        if line.trim_end().is_empty() {
            return first.ok_or_else(broken);
        }
        first = first.or_else(|| line.split(' ').nth(1)?.parse().ok());
    }
}
