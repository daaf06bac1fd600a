//! The rules of the loop as pure functions over plain data.
//!
//! Nothing here knows a file, a process, git, the environment or the clock:
//! what happened is passed in as data, and what shall happen comes out as data.
//! That is why a recorded run can be replayed through the very same functions.

pub mod by_hand;
pub mod collisions;
pub mod config;
pub mod context;
pub mod decide;
pub mod digest;
pub mod evidence;
pub mod explain;
pub mod goal;
pub mod ids;
pub mod inline_tests;
mod iteration_error;
pub mod journal;
pub mod landing;
pub mod linked_globs;
pub mod mask;
pub mod message;
pub mod meta;
pub mod module_names;
pub mod output;
pub mod packages;
pub mod paths;
pub mod product;
pub mod prompt;
pub mod proof;
pub mod protected_value;
mod python_modules;
pub mod report;
pub mod run_state;
pub mod schema;
pub mod select;
pub mod text;
pub mod transition;
pub mod tree;
pub mod usage;
pub mod value_mask;
