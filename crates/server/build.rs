//! Builds again when the page was built; fails without it only where it is required.

use std::path::Path;

#[allow(clippy::print_stdout)] // This is how a build script speaks to cargo.
fn main() {
    let dist = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ui/dist");
    // An ignored folder. Cargo takes one that is not there for one that changed, and would
    // build this crate every time.
    let _ = std::fs::create_dir_all(dist);
    println!("cargo:rerun-if-changed={dist}");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=REQUIRE_UI");
    let required = std::env::var_os("REQUIRE_UI").is_some_and(|value| value == "1");
    let built = Path::new(dist).join("index.html").is_file();
    assert!(
        built || !required,
        "REQUIRE_UI=1, but the page is not built: `npm ci && npm run build` in ui/"
    );
}
