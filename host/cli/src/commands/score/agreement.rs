//! How near two sets of scores are to each other.

use serde::Serialize;

/// Agreement of our scores with those of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Agreement {
    /// Steps compared.
    n_steps: usize,
    /// Steps with the same most probable token.
    same_first: usize,
    /// Steps whose first two tokens are at least 0.05 apart in the file, and those of them with the same first token.
    n_gap_005: usize,
    same_first_gap_005: usize,
    /// The same for 0.2.
    n_gap_02: usize,
    same_first_gap_02: usize,
    /// Mean and largest distance between log-probabilities, over all tokens that the file lists.
    mean_difference: f64,
    max_difference: f64,
    #[serde(skip)]
    n_differences: usize,
    #[serde(skip)]
    sum: f64,
}

impl Agreement {
    /// Adds a step: the file's tokens, our most probable token, and our log-probabilities of the file's tokens.
    pub(super) fn add(&mut self, theirs: &[(u32, f64)], our_first: Option<u32>, ours: &[(u32, f32)]) {
        let Some(&(their_first, best)) = theirs.first() else {
            return;
        };
        let same = usize::from(our_first == Some(their_first));
        self.n_steps += 1;
        self.same_first += same;
        let gap = theirs.get(1).map_or(f64::INFINITY, |&(_, second)| best - second);
        if gap >= 0.05 {
            self.n_gap_005 += 1;
            self.same_first_gap_005 += same;
        }
        if gap >= 0.2 {
            self.n_gap_02 += 1;
            self.same_first_gap_02 += same;
        }
        for (&(_, theirs), &(_, ours)) in theirs.iter().zip(ours) {
            let difference = (theirs - f64::from(ours)).abs();
            self.n_differences += 1;
            self.sum += difference;
            self.max_difference = self.max_difference.max(difference);
        }
        self.mean_difference = self.sum / self.n_differences.max(1) as f64;
    }

    /// As a table for people.
    pub(super) fn table(&self) -> String {
        let line = |what: &str, same: usize, of: usize| {
            let percent = 100.0 * same as f64 / of.max(1) as f64;
            format!("{what:<36} {same:>5} of {of:>5}  {percent:>6.2} %\n")
        };
        let mut text = line("same first token, all steps", self.same_first, self.n_steps);
        text += &line(
            "same first token, gap at least 0.05",
            self.same_first_gap_005,
            self.n_gap_005,
        );
        text += &line(
            "same first token, gap at least 0.2",
            self.same_first_gap_02,
            self.n_gap_02,
        );
        text += &format!(
            "{:<36} {:>14.5}\n",
            "mean difference of log-probabilities", self.mean_difference
        );
        text + &format!("{:<36} {:>14.5}\n", "largest difference", self.max_difference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_steps_by_gap() {
        let mut agreement = Agreement::default();
        agreement.add(&[(1, -0.5), (2, -1.0)], Some(1), &[(1, -0.5), (2, -1.5)]);
        agreement.add(&[(1, -0.5), (2, -0.6)], Some(2), &[(1, -0.75), (2, -0.6)]);
        agreement.add(&[(1, -0.5), (2, -0.51)], Some(2), &[(1, -0.5), (2, -0.51)]);
        agreement.add(&[], Some(2), &[]);
        assert_eq!((agreement.n_steps, agreement.same_first), (3, 1));
        assert_eq!((agreement.n_gap_005, agreement.same_first_gap_005), (2, 1));
        assert_eq!((agreement.n_gap_02, agreement.same_first_gap_02), (1, 1));
        assert!((agreement.mean_difference - 0.75 / 6.0).abs() < 1e-6, "{agreement:?}");
        assert!((agreement.max_difference - 0.5).abs() < 1e-6);
        let table = agreement.table();
        assert!(table.contains("1 of     3   33.33 %"), "{table}");
    }
}
