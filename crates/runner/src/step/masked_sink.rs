//! The output of a child without the values that it was handed.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

use runner_core::config::Config;
use runner_core::value_mask::{MaskedStream, ValueMask};
use runner_exec::{Flow, Sink, Stream};

/// The values of variables that the config passes through to children.
pub(crate) fn passed_values(config: &Config) -> ValueMask {
    let names = config.workspace.env.iter().chain(&config.guard.env);
    let values = names.filter_map(std::env::var_os);
    ValueMask::new(values.map(OsString::into_vec))
}

/// Hands on what can be shown.
pub(crate) struct MaskedSink<'a, S> {
    inner: &'a mut S,
    mask: &'a ValueMask,
    stdout: MaskedStream,
    stderr: MaskedStream,
}

impl<'a, S: Sink> MaskedSink<'a, S> {
    pub(crate) fn new(inner: &'a mut S, mask: &'a ValueMask) -> Self {
        MaskedSink {
            inner,
            mask,
            stdout: MaskedStream::default(),
            stderr: MaskedStream::default(),
        }
    }

    /// Hands on what was held back.
    pub(crate) fn finish(mut self) {
        for (stream, rest) in [
            (Stream::Stdout, self.stdout.finish()),
            (Stream::Stderr, self.stderr.finish()),
        ] {
            if !rest.is_empty() {
                // It has ended: there is nothing left to stop.
                let _ = self.inner.output(stream, &rest);
            }
        }
    }
}

impl<S: Sink> Sink for MaskedSink<'_, S> {
    fn output(&mut self, stream: Stream, bytes: &[u8]) -> Flow {
        if self.mask.is_empty() {
            return self.inner.output(stream, bytes);
        }
        let held = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let shown = held.push(self.mask, bytes);
        self.inner.output(stream, &shown)
    }

    fn tick(&mut self) -> Flow {
        self.inner.tick()
    }

    fn tick_every(&self) -> Option<Duration> {
        self.inner.tick_every()
    }

    fn supervised(&mut self, pid: u32) {
        self.inner.supervised(pid);
    }

    fn started(&mut self, pid: u32) {
        self.inner.started(pid);
    }
}
