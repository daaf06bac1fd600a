//! Who is at work in `fleet up`: what preflight says begins at once, everybody else with
//! their first work.

use std::collections::BTreeSet;

use runner_fleet::rules::begin::{FleetRole, fleet_roles, waiting};
use runner_fleet::rules::preflight::RoleCounts;
use runner_fleet::up::Fleet;
use serde_json::json;

use super::context::CommandContext;
use super::up::{FleetUpError, said};
use crate::out::OutputGate;
use crate::style;

/// Roles that are at work, and those that wait for something to do.
pub(super) struct RoleStarter<'g> {
    context: &'g CommandContext,
    wanted: RoleCounts,
    waiting: BTreeSet<FleetRole>,
}

impl<'g> RoleStarter<'g> {
    /// Lets begin what begins at once.
    pub(super) fn begin(
        fleet: &mut Fleet,
        context: &'g CommandContext,
        at_once: &RoleCounts,
    ) -> std::result::Result<RoleStarter<'g>, FleetUpError> {
        let wanted = RoleCounts::from(context.settings());
        let starter = RoleStarter {
            context,
            waiting: waiting(&wanted, at_once),
            wanted,
        };
        for (role, count) in fleet_roles(at_once) {
            starter.hire(fleet, role, count)?;
        }
        Ok(starter)
    }

    fn hire(
        &self,
        fleet: &mut Fleet,
        role: FleetRole,
        count: u32,
    ) -> std::result::Result<(), FleetUpError> {
        for _ in 0..count {
            let name = self.context.names.next(role.word());
            fleet.begin(role, name.map_err(|error| said(error.into()))?);
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
        for (role, why) in due {
            let count = self.count(role);
            self.hire(fleet, role, count)?;
            self.waiting.remove(&role);
            if out.json {
                out.object(json!({
                    "event": "begins", "role": role.word(), "count": count, "why": why,
                }));
                continue;
            }
            let who = match count {
                1 => format!("{} begins", shown(role)),
                _ => format!("{} begin", style::counted(count, shown(role))),
            };
            out.say(&format!("{who}: {why}"));
        }
        Ok(())
    }

    fn count(&self, role: FleetRole) -> u32 {
        let all = fleet_roles(&self.wanted);
        all.iter()
            .find(|(one, _)| *one == role)
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
            .filter(|role| self.count(*role) > 0)
            .partition(|role| self.waiting.contains(role));
        let words = |roles: Vec<FleetRole>| {
            let each = roles.iter();
            let each: Vec<String> = each
                .map(|role| style::counted(self.count(*role), shown(*role)))
                .collect();
            each.join(", ")
        };
        (words(there), words(wait))
    }
}

fn shown(role: FleetRole) -> &'static str {
    match role {
        FleetRole::Cycle => "cycle manager",
        role => role.word(),
    }
}
