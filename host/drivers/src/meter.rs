//! The fuel that drivers spend on a call, so that the host can charge it to the tenant queue that made the call.

use std::cell::Cell;

tokio::task_local! {
    static SPENT: Cell<u64>;
}

/// Makes a call of a cloud. Returns its result, and the fuel that drivers have spent on it.
pub async fn metered<F: Future>(call: F) -> (F::Output, u64) {
    SPENT
        .scope(Cell::new(0), async {
            let answer = call.await;
            (answer, SPENT.with(Cell::get))
        })
        .await
}

/// Adds fuel that a driver has spent. Outside of [`metered`] the fuel is charged to no tenant queue.
pub(crate) fn spend(fuel: u64) {
    let add = |spent: &Cell<u64>| spent.set(spent.get().saturating_add(fuel));
    let _ = SPENT.try_with(add);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_call_has_a_meter_of_its_own() {
        spend(1);
        let call = async |fuel| {
            spend(fuel);
            tokio::task::yield_now().await;
            spend(fuel);
        };
        let ((_, one), (_, other)) = tokio::join!(metered(call(2)), metered(call(30)));
        assert_eq!((one, other), (4, 60));
    }
}
