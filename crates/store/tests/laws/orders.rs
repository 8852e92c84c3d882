//! All orders of a small set.

/// Calls `visit` with every order of `0..count`.
pub fn for_each_order(count: usize, visit: &mut dyn FnMut(&[usize])) {
    let mut order: Vec<usize> = (0..count).collect();
    arrange(&mut order, 0, visit);
}

fn arrange(order: &mut Vec<usize>, from: usize, visit: &mut dyn FnMut(&[usize])) {
    if from == order.len() {
        return visit(order);
    }
    for next in from..order.len() {
        order.swap(from, next);
        arrange(order, from + 1, visit);
        order.swap(from, next);
    }
}

#[test]
fn every_order_comes_once() {
    let mut orders = std::collections::BTreeSet::new();
    for_each_order(6, &mut |order| assert!(orders.insert(order.to_vec())));
    assert_eq!(orders.len(), 720);
}
