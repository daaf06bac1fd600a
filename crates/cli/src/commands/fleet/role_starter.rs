//! Who is at work in `fleet up`: what preflight says begins at once, everybody else with
//! their first work.

use std::collections::BTreeSet;

use runner_fleet::rules::begin::{FleetRole, posts, waiting};
use runner_fleet::rules::preflight::RoleCounts;
use runner_fleet::up::Fleet;
use serde_json::json;

use super::context::CommandContext;
use super::up::{FleetUpError, said};
use crate::out::OutputGate;
use crate::style;

/// Roles that are at work, and those that wait for something to do.
pub(super) struct RoleStarter<'g> {
    ground: &'g CommandContext,
    wanted: RoleCounts,
    waiting: BTreeSet<FleetRole>,
}

impl<'g> RoleStarter<'g> {
    /// Lets begin what begins at once.
    pub(super) fn begin(
        fleet: &mut Fleet,
        ground: &'g CommandContext,
        at_once: &RoleCounts,
    ) -> std::result::Result<RoleStarter<'g>, FleetUpError> {
        let wanted = RoleCounts::from(ground.settings());
        let staff = RoleStarter {
            ground,
            waiting: waiting(&wanted, at_once),
            wanted,
        };
        for (post, count) in posts(at_once) {
            staff.hire(fleet, post, count)?;
        }
        Ok(staff)
    }

    fn hire(
        &self,
        fleet: &mut Fleet,
        post: FleetRole,
        count: u32,
    ) -> std::result::Result<(), FleetUpError> {
        for _ in 0..count {
            let name = self.ground.names.next(post.word());
            fleet.begin(post, name.map_err(|error| said(error.into()))?);
        }
        Ok(())
    }

    /// Lets begin whose first work has appeared, and says so.
    pub(super) async fn look(
        &mut self,
        fleet: &mut Fleet,
        out: &mut OutputGate,
    ) -> std::result::Result<(), FleetUpError> {
        let due = match fleet.due(&self.waiting).await {
            Ok(due) => due,
            // Somebody looks again soon, as every role does.
            Err(error) if error.is_transient() => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for (post, why) in due {
            let count = self.count(post);
            self.hire(fleet, post, count)?;
            self.waiting.remove(&post);
            if out.json {
                out.object(json!({
                    "event": "begins", "role": post.word(), "count": count, "why": why,
                }));
                continue;
            }
            let who = match count {
                1 => format!("{} begins", shown(post)),
                _ => format!("{} begin", style::counted(count, shown(post))),
            };
            out.say(&format!("{who}: {why}"));
        }
        Ok(())
    }

    fn count(&self, post: FleetRole) -> u32 {
        let all = posts(&self.wanted);
        all.iter()
            .find(|(one, _)| *one == post)
            .map_or(0, |(_, count)| *count)
    }

    /// Those that were there at once, and those that wait, for people. The planner is told
    /// of by itself.
    pub(super) fn told(&self) -> (String, String) {
        let told = [
            FleetRole::Worker,
            FleetRole::Tester,
            FleetRole::Docser,
            FleetRole::Judge,
        ];
        let (wait, there): (Vec<FleetRole>, Vec<FleetRole>) = told
            .into_iter()
            .filter(|post| self.count(*post) > 0)
            .partition(|post| self.waiting.contains(post));
        let words = |posts: Vec<FleetRole>| {
            let each = posts.iter();
            let each: Vec<String> = each
                .map(|post| style::counted(self.count(*post), shown(*post)))
                .collect();
            each.join(", ")
        };
        (words(there), words(wait))
    }
}

fn shown(post: FleetRole) -> &'static str {
    match post {
        FleetRole::Cycle => "cycle manager",
        post => post.word(),
    }
}
