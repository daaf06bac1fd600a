//! The routes with their description: `/openapi.json` is made of the same list.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::get;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, ResponseBuilder,
};
use utoipa::{PartialSchema as _, ToSchema as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::refusal::{FleetFailure, FleetProblem};
use super::{FleetState, changes, events, gate, lists, metrics, system, tasks};
use crate::reply;

const BEARER: &str = "bearer";

/// All routes.
pub(crate) fn router(state: &FleetState) -> Router<FleetState> {
    let (router, mut api) = OpenApiRouter::with_openapi(description(state.version()))
        .routes(routes!(tasks::list, changes::create))
        .routes(routes!(tasks::show))
        .routes(routes!(tasks::events))
        .routes(routes!(changes::transition))
        .routes(routes!(changes::cancel))
        .routes(routes!(changes::accept))
        .routes(routes!(changes::retry))
        .routes(routes!(changes::pause))
        .routes(routes!(lists::runs))
        .routes(routes!(lists::judgements))
        .routes(routes!(lists::agents))
        .routes(routes!(lists::locks))
        .routes(routes!(system::preflight))
        .routes(routes!(system::neofetch))
        .routes(routes!(system::host_context))
        .routes(routes!(system::health))
        .routes(routes!(system::ready))
        .routes(routes!(metrics::metrics))
        .routes(routes!(events::events))
        .split_for_parts();
    complete(&mut api, state);
    let text: Bytes = serde_json::to_vec(&api).unwrap_or_default().into();
    let allowed = Arc::new(Allowed::of(&api));
    router
        .route("/openapi.json", get(async move || document(text.clone())))
        .fallback(async || FleetFailure::not_found("there is no such endpoint; see /openapi.json"))
        .method_not_allowed_fallback(move |method: Method, uri: Uri| {
            let allowed = Arc::clone(&allowed);
            async move { allowed.refuse(&method, uri.path()) }
        })
}

fn document(text: Bytes) -> Response {
    let mut response = Response::new(text.into());
    reply::set(&mut response, header::CONTENT_TYPE, "application/json");
    reply::set(&mut response, header::CACHE_CONTROL, "no-cache");
    response
}

fn description(version: &str) -> OpenApi {
    let info = InfoBuilder::new()
        .title("runner fleet")
        .version(version)
        .description(Some(
            "Tasks, runs, agents, judgements and locks of one fleet. Points in time are \
             milliseconds since the Unix epoch. Every request but GET /health on loopback takes \
             the bearer token that `runner fleet token` prints; reads on loopback need none where \
             sessions and guards have no way to it.",
        ));
    OpenApiBuilder::new().info(info.build()).build()
}

/// Adds what every operation has: the token, and the errors that are answered before or
/// beside it.
fn complete(api: &mut OpenApi, state: &FleetState) {
    let components = api.components.get_or_insert_default();
    components.add_security_scheme(
        BEARER,
        SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build()),
    );
    let problem = FleetProblem::name().into_owned();
    components
        .schemas
        .insert(problem.clone(), FleetProblem::schema());
    let mut inner = Vec::new();
    FleetProblem::schemas(&mut inner);
    components.schemas.extend(inner);
    for (path, item) in &mut api.paths.paths {
        for (method, operation) in operations(item) {
            let writes = method == Method::POST;
            for (status, words) in errors(path, writes, operation) {
                let known = operation.responses.responses.contains_key(status);
                if !known {
                    let body = ContentBuilder::new()
                        .schema(Some(RefOr::Ref(Ref::from_schema_name(&problem))))
                        .build();
                    let response = ResponseBuilder::new()
                        .description(words)
                        .content("application/json", body)
                        .build();
                    let responses = &mut operation.responses.responses;
                    responses.insert(status.to_owned(), RefOr::T(response));
                }
            }
            let token = SecurityRequirement::new(BEARER, Vec::<String>::new());
            let mut security = vec![token];
            let lives = path == gate::OPEN && !state.is_beyond_loopback();
            if !writes && (lives || state.has_open_reads()) {
                security.push(SecurityRequirement::default());
            }
            operation.security = Some(security);
        }
    }
}

/// The errors of an operation.
fn errors(path: &str, writes: bool, operation: &Operation) -> Vec<(&'static str, &'static str)> {
    let mut errors = vec![
        ("401", "the token is missing or wrong"),
        ("403", "the host or origin is not of this server"),
        ("405", "the path has other methods; Allow lists them"),
        ("422", "the query, a header or the body makes no sense"),
        ("500", "the ledger is damaged"),
        (
            "503",
            "the ledger cannot be reached, is full or read-only; or too many listen",
        ),
    ];
    if path.contains('{') {
        errors.push(("404", "there is no such task"));
    }
    if operation.request_body.is_some() {
        errors.push(("400", "the body is no JSON"));
        errors.push(("413", "the body is too large"));
        errors.push(("415", "the body is not said to be JSON"));
    }
    if writes {
        errors.push((
            "409",
            "the rules, or somebody who was faster, stand against it",
        ));
    }
    errors
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let get = item.get.as_mut().map(|one| (Method::GET, one));
    let post = item.post.as_mut().map(|one| (Method::POST, one));
    get.into_iter().chain(post)
}

/// Which methods a path has.
struct Allowed(BTreeMap<Vec<String>, Vec<&'static str>>);

impl Allowed {
    fn of(api: &OpenApi) -> Allowed {
        let mut allowed = BTreeMap::new();
        for (path, item) in &api.paths.paths {
            let mut methods = Vec::new();
            if item.get.is_some() {
                methods.extend(["GET", "HEAD"]);
            }
            if item.post.is_some() {
                methods.push("POST");
            }
            allowed.insert(parts(path), methods);
        }
        allowed.insert(parts("/openapi.json"), vec!["GET", "HEAD"]);
        Allowed(allowed)
    }

    fn refuse(&self, method: &Method, path: &str) -> Response {
        use axum::response::IntoResponse as _;
        let asked = parts(path);
        let fits = |known: &Vec<String>| {
            known.len() == asked.len()
                && known
                    .iter()
                    .zip(&asked)
                    .all(|(known, asked)| known.starts_with('{') || known == asked)
        };
        let methods = self.0.iter().find(|(known, _)| fits(known));
        let methods = methods.map_or_else(String::new, |(_, methods)| methods.join(", "));
        let words = format!("{method} is not for this path; it has {methods}");
        let failure =
            FleetFailure::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", words);
        let mut response = failure.into_response();
        reply::set(&mut response, header::ALLOW, &methods);
        response
    }
}

fn parts(path: &str) -> Vec<String> {
    path.split('/').map(str::to_owned).collect()
}
