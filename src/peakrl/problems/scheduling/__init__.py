"""One machine, jobs with due dates and deadlines."""
