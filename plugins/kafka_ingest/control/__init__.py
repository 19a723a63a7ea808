"""The control tables: what is stored (:mod:`.reader`), the steps that change it (:mod:`.writer`), and their schema."""
