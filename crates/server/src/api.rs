//! The endpoints: each looks at the files and answers, nothing more.

use std::io;
use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use runner::Project;

use crate::ServerContext;
use crate::beneath;
use crate::reply::{ApiAnswer, ApiRefusal};
use crate::source::{self, FoundIteration, RunSource};
use crate::trees::CheckedTree;
use crate::wire::{self, TreeFindingView};
use crate::{head, logs, page, plan, rows, sse};

type ApiResult = Result<ApiAnswer, ApiRefusal>;

/// How much of a diff is shown.
const MAX_DIFF: u64 = 2 * 1024 * 1024;

/// Runs what reads files where it may block, and sends the answer.
async fn blocking(
    shared: Arc<ServerContext>,
    headers: HeaderMap,
    act: impl FnOnce(&ServerContext) -> ApiResult + Send + 'static,
) -> Response {
    let work = move || match act(&shared) {
        // Compressing takes time, too.
        Ok(answer) => answer.into_response(&headers),
        Err(refusal) => refusal.into_response(),
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(response) => response,
        Err(_) => ApiRefusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "io",
            "the answer could not be made",
        )
        .into_response(),
    }
}

/// `GET /api/run`
pub(crate) async fn run(State(shared): State<Arc<ServerContext>>, headers: HeaderMap) -> Response {
    blocking(shared, headers, |shared| {
        let run = shared.source.need_run()?;
        Ok(ApiAnswer::json(&head::run(&shared.source, &run)))
    })
    .await
}

/// `GET /api/tree`
pub(crate) async fn tree(State(shared): State<Arc<ServerContext>>, headers: HeaderMap) -> Response {
    blocking(shared, headers, |shared| {
        let project = shared.source.need_project()?;
        tree_answer(shared.source.tree(&project))
    })
    .await
}

fn tree_answer(checked: io::Result<CheckedTree>) -> ApiResult {
    match checked {
        Ok(Ok(tree)) => Ok(ApiAnswer::known_json(
            tree.bytes.clone(),
            tree.etag.clone(),
            Some(tree.gzip()),
        )),
        Ok(Err(findings)) => Err(ApiRefusal::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "invalid_tree",
            "the tree is not valid",
        )
        .hint("`runner validate` says more; the next step may be asked to repair it")
        .findings(findings.to_vec())),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            let refusal = ApiRefusal::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "invalid_tree",
                "the tree is not valid",
            );
            Err(refusal.findings(vec![TreeFindingView {
                place: runner_core::paths::TREE.to_owned(),
                message: error.to_string(),
            }]))
        }
        Err(error) => Err(unreadable(&error, "no_tree", "there is no tree yet")),
    }
}

/// `GET /api/run-state`
pub(crate) async fn run_state(
    State(shared): State<Arc<ServerContext>>,
    headers: HeaderMap,
) -> Response {
    blocking(shared, headers, |shared| {
        let project = shared.source.need_project()?;
        if project.content_id(runner_core::paths::RUN_STATE).is_none() {
            let message = "there is no run_state.json yet";
            return Err(ApiRefusal::new(StatusCode::NOT_FOUND, "no_state", message));
        }
        let state = runner::run_state_of(&project).map_err(|error| {
            let refusal = ApiRefusal::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "invalid_state",
                "run_state.json is not valid",
            );
            refusal.findings(vec![TreeFindingView {
                place: runner_core::paths::RUN_STATE.to_owned(),
                message: error.message,
            }])
        })?;
        Ok(ApiAnswer::json(&wire::RunStateView {
            run_id: state.run_id,
            next_iter: state.next_iter,
            last_status: state.last_status.map(Into::into),
            last_summary: state.last_summary,
            last_guard: state.last_guard.map(Into::into),
            last_node_id: state.last_node_id,
        }))
    })
    .await
}

/// `GET /api/iterations`
pub(crate) async fn iterations(
    State(shared): State<Arc<ServerContext>>,
    headers: HeaderMap,
) -> Response {
    blocking(shared, headers, |shared| {
        let project = shared.source.need_project()?;
        Ok(ApiAnswer::json(&rows::iterations(&shared.source, &project)))
    })
    .await
}

/// `GET /api/iterations/{run}/{iter}`
pub(crate) async fn iteration(
    State(shared): State<Arc<ServerContext>>,
    path: Result<Path<(String, String)>, PathRejection>,
    headers: HeaderMap,
) -> Response {
    blocking(shared, headers, move |shared| {
        let Path((run, iter)) = path.map_err(no_such_path)?;
        let project = shared.source.need_project()?;
        let it = source::find(&project, &run, &iter)?;
        Ok(ApiAnswer::json(&rows::detail(
            &shared.source,
            &project,
            &it,
        )))
    })
    .await
}

/// `GET /api/iterations/{run}/{iter}/{file}`
pub(crate) async fn part(
    State(shared): State<Arc<ServerContext>>,
    path: Result<Path<(String, String, String)>, PathRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    blocking(shared, headers, move |shared| {
        let Path((run, iter, file)) = path.map_err(no_such_path)?;
        let project = shared.source.need_project()?;
        let it = source::find(&project, &run, &iter)?;
        match file.as_str() {
            "tree" => past_tree(&shared.source, &project, &it),
            "plan" => plan_changes(&project, &it),
            "diff" => diff(&project, &it),
            _ => log(&project, &it, &file, uri.query().unwrap_or_default()),
        }
    })
    .await
}

/// The tree after an iteration, or before it while it is under way.
fn past_tree(source: &RunSource, project: &Project, it: &FoundIteration) -> ApiResult {
    let root = project.root();
    let after = source.tree_of(root, it, "tree.after.json");
    match after {
        Err(error) if beneath::is_absent(&error) => {
            tree_answer(source.tree_of(root, it, "tree.before.json"))
        }
        other => tree_answer(other),
    }
}

fn plan_changes(project: &Project, it: &FoundIteration) -> ApiResult {
    let max = runner_core::tree::MAX_BYTES;
    let read = |file: &str| {
        it.read(project.root(), file, max)
            .map_err(|error| unreadable(&error, "not_found", "the trees are not recorded yet"))
    };
    let (before, after) = (read("tree.before.json")?, read("tree.after.json")?);
    Ok(ApiAnswer::json(&plan::changes(&before, &after)))
}

fn diff(project: &Project, it: &FoundIteration) -> ApiResult {
    let patch = runner::patch_of(project, &it.run, it.iter, MAX_DIFF).map_err(|error| {
        let refusal = ApiRefusal::new(StatusCode::CONFLICT, "git", error.message);
        match error.hint {
            Some(hint) => refusal.hint(hint),
            None => refusal,
        }
    })?;
    let Some(patch) = patch else {
        let message = "the run's branch has no commit of this iteration";
        return Err(ApiRefusal::not_found(message));
    };
    Ok(ApiAnswer::json(&wire::DiffView {
        commit: patch.commit,
        text: patch.text,
        truncated: patch.truncated,
    }))
}

fn log(project: &Project, it: &FoundIteration, file: &str, query: &str) -> ApiResult {
    let Some(name) = rows::FILES.into_iter().find(|known| *known == file) else {
        return Err(ApiRefusal::not_found(
            "there is no such file of an iteration",
        ));
    };
    let asked = FileRange::parse(query)?;
    let mut open = it
        .open(project.root(), name)
        .map_err(|error| unreadable(&error, "not_found", "this iteration has no such file"))?;
    let failed = |error: io::Error| unreadable(&error, "not_found", "the file vanished");
    if let Some(text) = asked.find {
        let offset = u64::try_from(asked.offset).unwrap_or(0);
        let found = logs::find(&mut open, offset, &text).map_err(failed)?;
        return Ok(ApiAnswer::json(&found));
    }
    let by_lines = name == "stream.jsonl";
    let page = logs::page(&mut open, asked.offset, asked.limit, by_lines).map_err(failed)?;
    let mut answer = ApiAnswer::text(page.bytes.into())
        .header("x-log-size", page.size)
        .header("x-log-offset", page.offset);
    if let Some(next) = page.next {
        answer = answer.header("x-log-next", next);
    }
    Ok(answer)
}

/// The query of a file.
#[derive(serde::Deserialize)]
struct Query {
    offset: Option<i64>,
    limit: Option<u64>,
    find: Option<String>,
}

/// Which piece of a file is wanted.
struct FileRange {
    offset: i64,
    limit: u64,
    find: Option<String>,
}

impl FileRange {
    fn parse(query: &str) -> Result<Self, ApiRefusal> {
        let wrong = |what: &str| {
            ApiRefusal::new(
                StatusCode::BAD_REQUEST,
                "bad_request",
                format!("the query cannot be read: {what}"),
            )
            .hint("offset=N, limit=N and find=TEXT are known")
        };
        let uri: Uri = format!("/?{query}").parse().map_err(|_| wrong("no URI"))?;
        let query = axum::extract::Query::<Query>::try_from_uri(&uri)
            .map_err(|error| wrong(&error.body_text()))?;
        let limit = query.limit.unwrap_or(logs::DEFAULT_LIMIT);
        if limit == 0 {
            return Err(wrong("limit must be at least 1"));
        }
        Ok(FileRange {
            offset: query.offset.unwrap_or(0),
            limit,
            find: query.find.clone(),
        })
    }
}

/// `GET /api/server`
pub(crate) async fn server(
    State(shared): State<Arc<ServerContext>>,
    headers: HeaderMap,
) -> Response {
    blocking(shared, headers, |shared| {
        Ok(ApiAnswer::json(&wire::ServerInfo {
            version: shared.version.clone(),
            project_dir: shared.source.dir().display().to_string(),
            project_there: shared.source.folder().is_some(),
            page: page::is_built(),
        }))
    })
    .await
}

/// `GET /events`
pub(crate) async fn events(
    State(shared): State<Arc<ServerContext>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let last_id = headers
        .get("last-event-id")
        .map(|value| value.to_str().unwrap_or_default());
    let lines = uri
        .query()
        .is_some_and(|query| query.split('&').any(|pair| pair == "stream=1"));
    sse::answer(&shared.hub, last_id, lines)
}

/// Everything else belongs to the page, but for what looks like an endpoint.
pub(crate) async fn rest(uri: Uri, headers: HeaderMap) -> Response {
    if uri.path().starts_with("/api") {
        return ApiRefusal::not_found("there is no such endpoint")
            .hint("docs/api.md lists them")
            .into_response();
    }
    page::answer(uri.path(), &headers)
}

#[allow(clippy::needless_pass_by_value)] // So that it fits `map_err`.
fn no_such_path(_: PathRejection) -> ApiRefusal {
    ApiRefusal::not_found("there is no such run in this clone")
}

fn unreadable(error: &io::Error, code: &str, absent: &str) -> ApiRefusal {
    if beneath::is_absent(error) {
        ApiRefusal::new(StatusCode::NOT_FOUND, code, absent)
    } else {
        ApiRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "io", error.to_string())
    }
}
