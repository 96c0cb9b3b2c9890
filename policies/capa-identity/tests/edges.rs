//! The table of cases, run natively.

use capa_identity::cases::Case;

fn natively(case: Case) {
    case.check(&case.run(|pass| polity_sdk::step::identity(pass, capa_identity::judge)));
}

capa_identity::each_case!(natively);
