//! The simplex method for small dense problems: the largest sum of `x >= 0` with `rows * x <= limits`.

/// Below this a coefficient counts as zero.
const EPSILON: f64 = 1e-9;

/// Prices of the rows, none negative. They are optimal unless the pivots run out, which only weakens what is made of
/// them.
pub(super) fn duals(rows: &[Vec<f64>], limits: &[f64]) -> Vec<f64> {
    let (m, n) = (rows.len(), rows.first().map_or(0, Vec::len));
    // Columns: variables, slacks, limit. Last row: the objective.
    let width = n + m + 1;
    let mut table: Vec<Vec<f64>> = Vec::with_capacity(m + 1);
    for (idx, (row, &limit)) in rows.iter().zip(limits).enumerate() {
        let mut line = vec![0.0; width];
        line[..n].copy_from_slice(row);
        line[n + idx] = 1.0;
        line[width - 1] = limit;
        table.push(line);
    }
    let mut objective = vec![0.0; width];
    objective[..n].fill(-1.0);
    table.push(objective);
    let mut basis: Vec<usize> = (n..n + m).collect();
    for pivot in 0..50 * (n + m) {
        // The steepest column; after a while the first one, which cannot go round in circles.
        let steepest = pivot < 10 * (n + m);
        let negative = (0..width - 1).filter(|&column| table[m][column] < -EPSILON);
        let entering = match steepest {
            true => negative.min_by(|&a, &b| table[m][a].total_cmp(&table[m][b])),
            false => negative.min(),
        };
        let Some(column) = entering else { break };
        let ratio = |row: usize| table[row][width - 1] / table[row][column];
        let positive = (0..m).filter(|&row| table[row][column] > EPSILON);
        let leaving = positive.min_by(|&a, &b| ratio(a).total_cmp(&ratio(b)).then(basis[a].cmp(&basis[b])));
        let Some(row) = leaving else { break };
        basis[row] = column;
        let scale = table[row][column];
        table[row].iter_mut().for_each(|value| *value /= scale);
        let line = table[row].clone();
        for (other, values) in table.iter_mut().enumerate() {
            let factor = values[column];
            if other != row && factor != 0.0 {
                values
                    .iter_mut()
                    .zip(&line)
                    .for_each(|(value, pivot)| *value -= factor * pivot);
            }
        }
    }
    table[m][n..n + m].iter().map(|price| price.max(0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// x + y <= 4, x + 3y <= 6, x <= 3: the sum is 4, the first row alone limits it.
    #[test]
    fn prices_of_a_small_problem() {
        let rows = [vec![1.0, 1.0], vec![1.0, 3.0], vec![1.0, 0.0]];
        assert_eq!(duals(&rows, &[4.0, 6.0, 3.0]), [1.0, 0.0, 0.0]);
    }

    #[test]
    fn nothing_to_gain() {
        assert!(duals(&[], &[]).is_empty());
        assert_eq!(duals(&[vec![1.0]], &[0.0]), [1.0]);
    }
}
