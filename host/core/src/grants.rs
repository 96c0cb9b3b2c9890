//! What a binding allows. Every other request is refused, recorded, and shown on the binding.
//!
//! # Guarantees
//!
//! - The grants of a binding are compiled once. Exactly one grant lets a request through (`Grants::admits`). So two
//!   grants of a kind never allow more together than each allows alone: an answer shows the fields of that grant, and
//!   its objects have the relation of that grant.
//! - Where several grants fit a request, grants without a relation come first, then the order of the binding decides.

mod acts;
mod asks;
mod compiled;
mod grant;
mod guarded;
mod load;
mod refusal;

pub use acts::{check_act, minted, minted_token};
pub use asks::{Answerer, check_question};
pub(crate) use asks::{check_parsed, is_no_session, shown};
pub use compiled::{Grants, MINTED, is_closed};
pub(crate) use compiled::{Reach, check_relation, is_reached};
pub use grant::{BoundedMint, Grant, KindGrant, MintGrant, Relation, SecretGrant, Verb};
pub use guarded::{HOST_CONDITION, check_writes, host_conditions, is_host_condition};
pub use load::{check_definition, check_load};
pub use polity_kube_rules::names::is_wellformed;
pub use refusal::{MissingGrant, Refusal};
