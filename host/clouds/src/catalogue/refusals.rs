//! Which errors of an API may count as refusals.
//!
//! A driver's manifest lists the codes of errors after which nothing was done. The host forgets a create that was refused, and it may be made
//! again. With a code that can also come after an effect, a driver could so make a machine of which nobody knows. Where the
//! host knows the login, it knows which codes cannot.

use polity_core::contract::driver::{Login, Refusals, StatusClass};

/// The most codes of an endpoint. EC2 has about twenty such codes.
const CODES: usize = 128;
/// The most bytes of a code, and of the path at which it stands.
const LONGEST: usize = 128;

/// Where AWS's Query APIs write the code of an error: EC2 in an element of its own, the others as in "Common error responses".
const AWS: [&str; 2] = ["Response.Errors.Error.Code", "ErrorResponse.Error.Code"];

/// Checks the refusals of an endpoint with this login.
///
/// - AWS refuses with a status 5xx what exceeds a rate or a capacity, and its codes say so: they begin with `Insufficient`, have
///   `Throttl` in them, or end in `LimitExceeded`. `InternalError`, `InternalFailure`, `ServiceUnavailable` and `Unavailable` also come after
///   a change that happened ("Error codes for the Amazon EC2 API", "Ensuring idempotency in Amazon EC2 API requests").
/// - Of another login the driver is believed: it is trusted with the truth about its own cloud.
///
/// # Errors
/// The rule that they break.
pub fn check_refusals(login: Login, refusals: &Refusals) -> Result<(), String> {
    let Refusals { code_at, codes } = refusals;
    let all = || {
        codes
            .iter()
            .flat_map(|(class, codes)| codes.iter().map(|code| (*class, code.as_str())))
    };
    let is_short = |text: &str| (1..=LONGEST).contains(&text.len());
    if !is_short(code_at) || all().count() > CODES || !all().all(|(_, code)| is_short(code)) {
        return Err(format!(
            "there may be {CODES} codes; codeAt and each code must have 1 to {LONGEST} bytes"
        ));
    }
    if login != Login::AwsSigv4 {
        return Ok(());
    }
    if !AWS.contains(&code_at.as_str()) {
        return Err(format!(
            "codeAt is {code_at:?}; AWS writes its codes at {}",
            AWS.join(" or ")
        ));
    }
    let wrong = all().find(|(class, code)| *class == StatusClass::ServerError && !is_limit(code));
    match wrong {
        None => Ok(()),
        Some((_, code)) => Err(format!(
            "{code:?} may come after a change that happened: with 5xx AWS refuses only what exceeds a rate or a capacity"
        )),
    }
}

/// Whether a code of AWS names a rate or a capacity.
fn is_limit(code: &str) -> bool {
    code.starts_with("Insufficient") || code.contains("Throttl") || code.ends_with("LimitExceeded")
}

#[cfg(test)]
mod tests {
    use super::*;

    const EC2: &str = AWS[0];

    fn with(login: Login, path: &str, code: &str) -> Result<(), String> {
        check_refusals(login, &Refusals::at(path).codes(StatusClass::ServerError, [code]))
    }

    #[test]
    fn of_aws_only_rates_and_capacities_are_refused_with_5xx() {
        for code in [
            "InsufficientInstanceCapacity",
            "RequestLimitExceeded",
            "EC2ThrottledException",
            "ThrottlingException",
        ] {
            assert_eq!(with(Login::AwsSigv4, EC2, code), Ok(()), "{code}");
        }
        for code in [
            "InternalError",
            "InternalFailure",
            "ServiceUnavailable",
            "Unavailable",
            "IdempotentParameterMismatch",
        ] {
            let refused = with(Login::AwsSigv4, EC2, code).expect_err(code);
            assert!(
                refused.contains(code) && refused.contains("may come after"),
                "{refused}"
            );
        }
        let refused = with(
            Login::AwsSigv4,
            "Response.Errors.Error.Message",
            "RequestLimitExceeded",
        );
        assert!(refused.is_err_and(|why| why.starts_with("codeAt is")));
    }

    #[test]
    fn a_login_that_names_no_cloud_leaves_the_codes_to_the_driver() {
        assert_eq!(with(Login::Bearer, "error.code", "no-room"), Ok(()));
        for (path, code) in [("", "a"), ("a", ""), ("a", &*"x".repeat(LONGEST + 1))] {
            assert!(with(Login::Bearer, path, code).is_err(), "{path} {code}");
        }
        let many: Vec<String> = (0..=CODES).map(|n| n.to_string()).collect();
        let many = Refusals::at("a").codes(StatusClass::ClientError, many.iter().map(String::as_str));
        assert!(check_refusals(Login::Bearer, &many).is_err());
    }
}
