"""The archives that servers send of streams, as messages: of a backup, or while they come."""
