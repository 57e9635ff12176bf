"""What every stage stands on: errors, schemas, file layout, store, environment, command line."""
