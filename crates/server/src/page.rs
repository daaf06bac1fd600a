//! The page: built into the binary if it was there when that was built.

use std::borrow::Cow;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use rust_embed::RustEmbed;

use crate::reply::{self, ApiAnswer, ApiRefusal};

#[derive(RustEmbed)]
#[folder = "../../ui/dist"]
#[allow_missing = true]
struct Built;

/// What is shown where the page was not built in.
const NOT_BUILT: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<title>runner: the page is not built</title>
<h1>The page is not built into this runner</h1>
<p>The API and the events are there: <a href=\"/api/run\">/api/run</a>,
<a href=\"/api/tree\">/api/tree</a>, <a href=\"/api/iterations\">/api/iterations</a>,
<a href=\"/events\">/events</a>. They are described in docs/api.md.
<p>To have the page, build it and then the runner, in its source folder
(this takes node 20 or newer):
<pre>
npm --prefix ui ci
npm --prefix ui run build
cargo build --release
</pre>
</html>
";

/// Whether the page is there.
pub(crate) fn is_built() -> bool {
    Built::get("index.html").is_some()
}

/// A file of the page. A path without a file is a place inside the page.
pub(crate) fn answer(path: &str, request: &HeaderMap) -> Response {
    let name = path.trim_start_matches('/');
    let name = if name.is_empty() { "index.html" } else { name };
    if let Some(file) = Built::get(name) {
        return file_answer(name, file.data, request);
    }
    // A name with an ending would be a file.
    if name.rsplit('/').next().unwrap_or_default().contains('.') && name != "index.html" {
        return ApiRefusal::not_found("there is no such page").into_response();
    }
    match Built::get("index.html") {
        Some(file) => file_answer("index.html", file.data, request),
        None => ApiAnswer::html(Bytes::from_static(NOT_BUILT.as_bytes())).into_response(request),
    }
}

fn file_answer(name: &str, data: Cow<'static, [u8]>, request: &HeaderMap) -> Response {
    let bytes = match data {
        Cow::Borrowed(bytes) => Bytes::from_static(bytes),
        Cow::Owned(bytes) => bytes.into(),
    };
    let mut response = ApiAnswer::file(content_type(name), bytes).into_response(request);
    // Names in assets/ contain a hash of the content.
    if name.starts_with("assets/") {
        let forever = "public, max-age=31536000, immutable";
        reply::set(&mut response, header::CACHE_CONTROL, forever);
    }
    response
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "json" | "map" | "webmanifest" => "application/json",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Sets the cookie and goes on to `next`, without the token in the address. Not a redirect:
/// after one, a browser that came from another site would not send the cookie.
pub(crate) fn admitted(cookie: &str, next: &str) -> Response {
    let text = format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"refresh\" \
         content=\"0; url={next}\">\n<title>runner</title>\n<a href=\"{next}\">go on</a>\n"
    );
    let mut response = Response::new(Body::from(text));
    reply::set(&mut response, header::CONTENT_TYPE, content_type("x.html"));
    reply::set(&mut response, header::CACHE_CONTROL, "no-store");
    reply::set(&mut response, header::SET_COOKIE, cookie);
    *response.status_mut() = StatusCode::OK;
    response
}
