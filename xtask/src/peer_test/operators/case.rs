//! A case of the operator test: one line of its report, and which cases make up a list.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

/// The device that the back end lists first.
pub(super) const DEVICE: &str = "HEX0";
/// Chooses the cases of the list; another seed, another list.
const SEED: &str = "hexloom 1";

/// What is on a list; larger cases are left to `--all`.
pub(crate) struct Size {
    /// Cases of one op with one set of types.
    pub(super) per_group: usize,
    /// Elements of a tensor.
    pub(super) max_elems: u64,
    /// Products of a matrix multiplication.
    pub(super) max_products: u64,
}

/// One line of the test's own report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Case {
    pub(super) op: String,
    pub(super) params: String,
    pub(super) supported: bool,
    pub(super) error: String,
}

impl Case {
    /// As the test takes it on its command line.
    pub(super) fn name(&self) -> String {
        format!("{}({})", self.op, self.params)
    }

    /// The parameters that name types, as a table shows them.
    pub(super) fn types(&self) -> String {
        let shown = types(&self.params).into_iter().map(|param| {
            let param = param.trim_start_matches("type").trim_start_matches('_');
            param.trim_start_matches('=').replace('=', " ")
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// A few claimed cases of every op and set of types, the same ones at every run: small ones, or the smallest there is.
pub(super) fn choose<'a>(all: &'a [Case], size: &Size) -> Vec<&'a Case> {
    let claimed = all.iter().filter(|case| case.supported);
    let mut keyed: Vec<(u64, Vec<u8>, &Case)> = claimed
        .map(|case| {
            let digest = Sha256::digest(format!("{SEED} {}", case.name()));
            (excess(&case.params, size), digest.to_vec(), case)
        })
        .collect();
    keyed.sort();
    let mut taken: BTreeMap<(&str, Vec<&str>), usize> = BTreeMap::new();
    let mut list: Vec<&Case> = Vec::new();
    for (excess, _, case) in keyed {
        let n = taken.entry((&case.op, types(&case.params))).or_default();
        let most = if excess == 0 { size.per_group } else { 1 };
        if *n < most {
            *n += 1;
            list.push(case);
        }
    }
    list.sort();
    list
}

/// The values of parameters that name types.
fn types(params: &str) -> Vec<&str> {
    let named = params.split(',').filter(|param| param.starts_with("type"));
    named.collect()
}

/// What a case has more than a list's size: 0 for small ones.
fn excess(params: &str, size: &Size) -> u64 {
    let numbers = |text: &str| -> Vec<u64> { text.split(',').filter_map(|n| n.trim().parse().ok()).collect() };
    let product = |numbers: Vec<u64>| numbers.into_iter().fold(1u64, u64::saturating_mul);
    let lists = params.split('[').skip(1).filter_map(|rest| rest.split(']').next());
    let largest = lists.map(|list| product(numbers(list))).max().unwrap_or(0);
    let scalar = |name: &str| {
        let value = params
            .split(',')
            .find_map(|param| param.strip_prefix(name)?.parse::<u64>().ok());
        value.unwrap_or(1)
    };
    let products = product(["m=", "n=", "k=", "r=", "nh=", "kv=", "nb="].map(scalar).to_vec());
    let [elems, products] =
        [(largest, size.max_elems), (products, size.max_products)].map(|(n, max)| n.saturating_sub(max));
    elems.max(products)
}

/// Reads a line of the report; `None` for others.
pub(super) fn read(line: &str) -> Option<Case> {
    read_of(DEVICE, line)
}

/// A line on one device. What a failed case says stands in front of its line.
pub(super) fn read_of(of: &str, line: &str) -> Option<Case> {
    let start = line.find(&format!("\"{of}\",\""))?;
    let line = line[start..].strip_prefix('"')?.strip_suffix('"')?;
    let fields: Vec<&str> = line.split("\",\"").collect();
    let [device, op, params, _mode, supported, error, ..] = fields[..] else {
        return None;
    };
    (device == of).then(|| Case {
        op: op.to_owned(),
        params: params.to_owned(),
        supported: supported == "1",
        error: error.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::SIMULATED;
    use super::*;

    const LINE: &str = r#""HEX0","CPY","type_src=f32,type_dst=f16,ne=[10,2,3,4]","test","1","","hexloom""#;

    #[test]
    fn lines_of_the_report() {
        let case = read(LINE).unwrap();
        assert_eq!(case.name(), "CPY(type_src=f32,type_dst=f16,ne=[10,2,3,4])");
        assert_eq!(types(&case.params), ["type_src=f32", "type_dst=f16"]);
        assert_eq!(read("\"CPU\",\"CPY\",\"a\",\"test\",\"1\",\"\""), None);
        assert_eq!(read("loading"), None);
        // A failed case: the message comes first, without an end of line.
        let failed = read(&format!("[CPY] ERR = 0.1 > 0.01 {LINE}")).unwrap();
        assert_eq!(failed.op, "CPY");
    }

    #[test]
    fn what_is_too_large_for_the_list() {
        let excess = |params| excess(params, &SIMULATED);
        assert_eq!(excess("type=f32,ne=[10,5,4,3],nr=[1,1,1,1]"), 0);
        assert!(excess("type=f32,ne=[8388608,1,1,1]") > excess("type=f32,ne=[4194304,1,1,1]"));
        assert_eq!(excess("m=16,n=8,k=256,bs=[1,1]"), 0);
        assert!(excess("m=4096,n=512,k=14336,bs=[1,1]") > 0);
    }

    #[test]
    fn the_list_has_every_op_and_type_and_is_fixed() {
        let mut all = Vec::new();
        for (op, dtype) in [("ADD", "f32"), ("ADD", "f16"), ("MUL", "f32")] {
            for n in 1..20 {
                all.push(Case {
                    op: op.to_owned(),
                    params: format!("type={dtype},ne=[{n}]"),
                    supported: true,
                    error: String::new(),
                });
            }
        }
        // Of an op that has only large cases, the smallest.
        for n in [9, 8] {
            all.push(Case {
                op: "FILL".to_owned(),
                params: format!("type=f16,ne=[{n},1048576]"),
                supported: true,
                error: String::new(),
            });
        }
        let list = choose(&all, &SIMULATED);
        assert_eq!(list.len(), 3 * SIMULATED.per_group + 1);
        assert!(list.iter().any(|case| case.params == "type=f16,ne=[8,1048576]"));
        let mut turned = all.clone();
        turned.reverse();
        assert_eq!(choose(&turned, &SIMULATED), list);
    }
}
