/* All tabs are there. */
'use strict';

T.view.begin();
