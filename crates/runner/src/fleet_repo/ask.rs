//! A question to the configured agent, in a checkout of its own that is thrown away: what
//! it says is data, however it comes.

use std::path::Path;
use std::time::{Duration, Instant};

use runner_agents::{AgentSpec, FailureKind};
use runner_core::config::{BackendKind, ChildKind, Config};
use runner_core::output::MAX_OUTPUT_BYTES;
use runner_exec::{CappedLog, Ended, Flow, Sink, Spec, Stream};

use super::FleetRepo;
use crate::agent_home::{SessionOutfit, instructions};
use crate::checkout::{Checkout, CleanCheckout};
use crate::error::{Error, ErrorCode, Result};
use crate::files;
use crate::limits::{LimitWatch, task_limit};
use crate::run_context::RunContext;
use crate::step::containment;
use crate::step::containment::{Containment, ContainmentInput};
use crate::step::environment;
use crate::step::masked_sink::{MaskedSink, passed_values};

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct SessionQuestion<'a> {
    /// What kind of question it is, one word: `RUNNER_QUESTION` in the session.
    pub kind: &'a str,
    /// What it is about: `RUNNER_RUN_ID` in the session.
    pub about: &'a str,
    /// The commit that is looked at.
    pub commit: &'a str,
    /// The commit whose instructions for agents count.
    pub base: &'a str,
    /// The words.
    pub prompt: &'a str,
    /// The JSON schema of the answer.
    pub schema: &'a str,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionAnswer {
    /// A text, which may be anything.
    Said(String),
    /// Nothing; why, in words.
    Silent(String),
    /// The quota is used up, until then (milliseconds since 1970).
    Quota(Option<i64>),
}

impl FleetRepo {
    /// Asks. `None`: the commit is not there.
    pub fn ask(
        &self,
        question: SessionQuestion<'_>,
        config: &Config,
        context: &mut RunContext<'_>,
    ) -> Result<Option<SessionAnswer>> {
        if !self.has(question.commit)? {
            return Ok(None);
        }
        let containment = Containment::choose(config)?;
        let checkout = CleanCheckout::of(&self.git, config, question.commit)?;
        ask(&checkout.checkout, question, config, &containment, context).map(Some)
    }
}

/// Where the answer goes, and how that is said.
fn how_to_answer(backend: BackendKind, output: &Path) -> String {
    let form = "Answer with one JSON document that follows the schema in RUNNER_OUTPUT_SCHEMA";
    match backend {
        BackendKind::Codex | BackendKind::Claude => format!("{form}, and nothing else."),
        BackendKind::Opencode | BackendKind::Command => {
            format!("{form}. Write it to the file {}.", output.display())
        }
    }
}

fn ask(
    checkout: &Checkout,
    question: SessionQuestion<'_>,
    config: &Config,
    containment: &Containment,
    context: &mut RunContext<'_>,
) -> Result<SessionAnswer> {
    let project = &checkout.project;
    let folder = project.iteration("question", 1);
    let seen = containment.seen(checkout);
    let seen_folder = seen.join(folder.strip_prefix(project.root()).unwrap_or(&folder));
    files::make_local_folder(&project.iterations())?;
    files::make_folder(&folder)?;
    let output = seen_folder.join("output.json");
    let schema = seen_folder.join("schema.json");
    let prompt = folder.join("prompt.md");
    let how = how_to_answer(config.executor.backend, &output);
    files::write_whole(&folder.join("schema.json"), question.schema.as_bytes())?;
    files::write_whole(
        &prompt,
        format!(
            "{}\n\n{how}\nChange nothing: this checkout is thrown away.\n",
            question.prompt
        )
        .as_bytes(),
    )?;
    let backend = runner_agents::backend(config.executor.backend);
    let kind = config.executor.backend;
    let instructions = instructions::of_commit(&checkout.tree.git, question.base, kind)?;
    let outfit = SessionOutfit::make(
        &*backend,
        checkout,
        config,
        &instructions,
        (&folder, &seen_folder),
    )?;
    let login_folder = outfit.login_folder();
    let invocation = backend.invocation(&AgentSpec {
        project_dir: seen,
        output_path: &output,
        schema_path: &schema,
        schema_json: question.schema,
        model: &config.executor.model,
        extra_args: &config.executor.extra_args,
        command: &config.executor.command,
        contained: containment.is_on(),
        is_root: rustix::process::geteuid().is_root(),
        agent_home: outfit.home(),
        login_folder: login_folder.as_deref(),
        inherit: &config.executor.inherit,
        instructions: outfit.instructions(),
    });
    let mut env = environment::for_question(config, &invocation);
    for (name, value) in [
        ("RUNNER_PROJECT_DIR", seen.as_os_str()),
        ("RUNNER_OUTPUT_PATH", output.as_os_str()),
        ("RUNNER_OUTPUT_SCHEMA", schema.as_os_str()),
        ("RUNNER_QUESTION", question.kind.as_ref()),
        ("RUNNER_RUN_ID", question.about.as_ref()),
        ("RUNNER_ITER", "1".as_ref()),
        ("RUNNER_NODE_ID", question.kind.as_ref()),
    ] {
        env.push((name.into(), value.to_owned()));
    }
    let mut homes = containment::agent_homes(&invocation, &env);
    homes.extend(outfit.writable());
    if containment.is_on() {
        containment::make_homes(&homes);
    }
    let mut contained = containment.wrap(
        &invocation.argv,
        &ContainmentInput {
            kind: ChildKind::Session,
            checkout,
            config,
            env: &env,
            report: Some(&folder),
            agent_homes: &homes,
        },
    )?;
    let idle = config.executor.idle_timeout_secs;
    let spec = Spec {
        argv: contained.argv,
        cwd: project.root().to_owned(),
        env: contained.env,
        stdin: Some(prompt),
        merge_stderr: false,
        deadline: Some(Instant::now() + Duration::from_secs(config.iteration_timeout_secs)),
        idle_timeout: (idle > 0).then(|| Duration::from_secs(idle)),
        grace: GRACE,
        monitor: contained.monitor,
        hold_lock: Some(checkout.session_lock.clone()),
        task_limit: task_limit(config),
        cannot_start: contained.cannot_start,
    };
    let cap = usize::try_from(config.executor_output_limit_bytes).unwrap_or(usize::MAX);
    let written = contained.held.written_in(checkout.path());
    let limits = LimitWatch::begin(config, ChildKind::Session, written);
    let mut heard = SessionOutput::new(cap, limits);
    let mask = passed_values(config);
    let mut masked = MaskedSink::new(&mut heard, &mask);
    let report = context.supervisor.run(&spec, context.cancel, &mut masked)?;
    masked.finish();
    let refused = contained.network.end();
    outfit.finish();
    if report.ended == Ended::Interrupted {
        return Err(Error::new(ErrorCode::Interrupted, "interrupted"));
    }
    if let Some(breach) = heard.limits.finish() {
        return Ok(SessionAnswer::Silent(breach.words));
    }
    let mut reader = backend.reader();
    for line in lines(&heard.stdout.finish()) {
        reader.line(line);
    }
    for line in lines(&heard.stderr.finish()) {
        reader.stderr(line);
    }
    let by_itself = matches!(report.ended, Ended::Exited(_) | Ended::Signaled(_));
    let tz = runner_agents::LocalZone::new(jiff::tz::TimeZone::system);
    let now = context.clock.now();
    let ending = reader.finish(report.exit.filter(|_| by_itself), now, &tz);
    let written = files::read_regular(&folder.join("output.json"), MAX_OUTPUT_BYTES as u64).ok();
    let said = written
        .or(ending.output)
        .filter(|it| !it.trim_ascii().is_empty());
    if let Some(said) = said {
        return Ok(SessionAnswer::Said(
            String::from_utf8_lossy(&said).into_owned(),
        ));
    }
    let answer = match (&report.ended, ending.failure) {
        (_, Some(failure)) if failure.kind == FailureKind::Quota => {
            let at = failure.reset.and_then(|reset| reset.at(now));
            SessionAnswer::Quota(at.map(jiff::Timestamp::as_millisecond))
        }
        (Ended::NotStarted(failure), _) => SessionAnswer::Silent(failure.message.clone()),
        (Ended::TimedOut | Ended::Idle, _) => SessionAnswer::Silent("its time was up".to_owned()),
        (_, Some(failure)) => {
            let secrets: Vec<&str> = config.executor.env.values().map(String::as_str).collect();
            SessionAnswer::Silent(runner_agents::mask_text(&failure.message, &secrets))
        }
        _ => SessionAnswer::Silent("the session ended without an answer".to_owned()),
    };
    Ok(match answer {
        SessionAnswer::Silent(why) if !refused.is_empty() => {
            SessionAnswer::Silent(format!("{why}; {}", refused.join("; ")))
        }
        other => other,
    })
}

/// What a session prints, both ends of each stream.
struct SessionOutput {
    stdout: OutputEnds,
    stderr: OutputEnds,
    limits: LimitWatch,
}

struct OutputEnds {
    head: Vec<u8>,
    rest: CappedLog,
}

impl OutputEnds {
    fn new(cap: usize) -> Self {
        OutputEnds {
            head: Vec::new(),
            rest: CappedLog::new(cap),
        }
    }

    fn finish(self) -> Vec<u8> {
        let mut bytes = self.head;
        bytes.extend(self.rest.finish().bytes);
        bytes
    }
}

impl SessionOutput {
    fn new(cap: usize, limits: LimitWatch) -> Self {
        SessionOutput {
            stdout: OutputEnds::new(cap),
            stderr: OutputEnds::new(cap),
            limits,
        }
    }
}

impl Sink for SessionOutput {
    fn output(&mut self, stream: Stream, bytes: &[u8]) -> Flow {
        let kept = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let head = kept.rest.push(bytes);
        kept.head.extend_from_slice(head);
        Flow::Go
    }

    fn supervised(&mut self, pid: u32) {
        self.limits.supervised(pid);
    }

    fn tick(&mut self) -> Flow {
        self.limits.tick()
    }

    fn tick_every(&self) -> Option<Duration> {
        Some(self.limits.tick_every())
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
}
