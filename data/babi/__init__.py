"""Questions about short stories: the twenty bAbI tasks, and stories in their format.

Weston et al. (2016), "Towards AI-complete question answering". The stories are drawn
from the rules of the tasks, written anew; the sentences follow the published examples.
"""
