"""The modules that every stage uses: errors, schemas, file layout, store, environment, command line."""
