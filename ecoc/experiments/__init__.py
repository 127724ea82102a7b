"""The paper's tables and figure again: rows that are run, results that are kept, and a report made of them."""
