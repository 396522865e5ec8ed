"""Values of any space as n rows: batches, columns, the table of all columns, infos, results."""
