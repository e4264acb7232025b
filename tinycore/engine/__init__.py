"""Running: programs are cached, LINEARs are made into batches, captured steps are replayed."""
