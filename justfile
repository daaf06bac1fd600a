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

# Install the runner command.
install *OPTIONS:
    cargo xtask install {{OPTIONS}}

# Check the rules that no compiler knows.
tidy:
    cargo xtask tidy

# Format all code.
fmt:
    cargo fmt --all
