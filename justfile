# Short names for `cargo xtask`; `just` alone lists them.

_default:
    @just --list

# Everything that must be green before a commit.
ci:
    cargo xtask ci

# Build the release binary and play a whole run with it.
demo:
    cargo xtask demo

# Measure against floors: `just bench loop`.
bench NAME *OPTIONS:
    cargo xtask bench {{NAME}} {{OPTIONS}}

# Show the project in DIR in the browser (the page, if it was built).
ui-server DIR *OPTIONS:
    cargo run --release -- -C "{{DIR}}" ui {{OPTIONS}}

# Kill the runner at every write of a step and let it recover.
sweep *OPTIONS:
    cargo xtask sweep {{OPTIONS}}

# Kill a whole fleet again and again and let it recover.
fleet-kill *OPTIONS:
    cargo xtask fleet-kill {{OPTIONS}}

# Explore every state that the rules of the lifecycle can reach.
model *OPTIONS:
    cargo xtask model {{OPTIONS}}

# Install the runner command.
install *OPTIONS:
    cargo xtask install {{OPTIONS}}

# Check the rules that no compiler knows.
tidy:
    cargo xtask tidy

# Format all code.
fmt:
    cargo fmt --all

# Run cases: `just eval scripted-success --runs 3`; without a name it runs all.
eval *OPTIONS:
    cargo run --release --locked -- eval run {{OPTIONS}}

# Run a case and show it in the browser, from its first second; Ctrl-C ends both.
eval-with-ui CASE *OPTIONS:
    #!/bin/sh
    set -eu
    cargo build --release --locked
    runner=${CARGO_TARGET_DIR:-target}/release/runner
    "$runner" eval run "{{CASE}}" {{OPTIONS}} &
    run=$!
    # Ctrl-C ends the view; the run then has its moment to end in good order.
    trap : INT
    trap 'kill -INT "$run" 2>/dev/null || true; wait "$run" || true' EXIT
    "$runner" -C "eval/workspaces/{{CASE}}_latest" ui || true

# The page while one works on it; it shows the project of a `runner ui` on port 7878.
ui-dev:
    npm --prefix ui run dev
